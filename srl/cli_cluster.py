"""The commands for runs over several machines."""

from __future__ import annotations

from dataclasses import dataclass

from tyro.conf import Positional

DEFAULT_SECRET = "~/.srl/secret"


@dataclass(frozen=True)
class Agent:
    """Put this machine at the service of a run: `srl agent HOST:PORT`, as `srl train --bind` was given."""

    address: Positional[str]
    """Where the run's controller listens."""
    secret_file: str = DEFAULT_SECRET
    """A copy of the file where `srl train` runs."""
    cpus: float | None = None
    """CPUs to offer; all by default."""
    gpus: float | None = None
    """GPUs to offer; all by default."""
    host: str = ""
    """The name of this machine in the run; by default its host name."""
    patience: float = 60.0
    """Seconds to try to join, and to join again when the connection is lost."""

    def run(self) -> int:
        from srl.schedulers.agent import Offer, keep_joining
        from srl.schedulers.join_secret import read_secret

        offer = Offer(self.host, self.cpus, self.gpus)
        return keep_joining(self.address, read_secret(self.secret_file), offer, self.patience, print)
