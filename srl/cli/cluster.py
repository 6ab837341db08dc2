"""The commands for runs over several machines."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from srl.storage import ROOT

DEFAULT_SECRET = "~/.srl/secret"
FOLLOW_SECONDS = 0.2


@dataclass(frozen=True)
class Logs:
    """Show what a run's workers and agents printed, on whatever host: `srl logs RUN`, or `srl logs RUN actors/0`."""

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its path, its name, a unique beginning of its name, or `latest`."""
    worker: Positional[str] = ""
    """Of whom; by default of everybody."""
    follow: bool = False
    """Go on as more is printed, until interrupted."""
    root: Path = ROOT
    """Directory below which runs are kept."""

    def run(self) -> int:
        from srl.base.errors import nearest
        from srl.storage.run_directory import find

        run = find(self.run_name, self.root, include_empty=True)
        known = sorted(path.stem for path in run.logs.glob("*.log"))
        wanted = run.log(self.worker).stem if self.worker else ""
        if wanted and wanted not in known:
            raise ValueError(f"no log of {self.worker!r} in {run.logs}{nearest(wanted, known)}")
        shown: dict[str, int] = {}
        while True:
            for path in sorted(run.logs.glob(f"{wanted or '*'}.log")):
                self._show(path, shown)
            if not self.follow:
                return 0
            time.sleep(FOLLOW_SECONDS)

    def _show(self, path: Path, shown: dict[str, int]) -> None:
        with path.open("rb") as file:
            file.seek(shown.get(path.stem, 0))
            text = file.read().decode(errors="replace")
            shown[path.stem] = file.tell()
        head = "" if self.worker else f"{path.stem}: "
        for line in text.splitlines():
            print(f"{head}{line}")


@dataclass(frozen=True)
class Chaos:
    """Harm a running job on purpose, and report what it did: `srl chaos RUN --faults kill,stop --every 5 --count 20`.

    Checks that versions only grow, that no sample is older than its bound or used twice, that every update follows from
    its predecessor (with `srl train ENV --journal`), and that every fault is overcome. Fails (1) if not.
    """

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its name or a unique beginning of it; `latest` for the newest."""
    faults: str = "kill,stop,partition,slow"
    """What to do to workers: `kill` their process, `stop` it without a trace, cut their TCP connections (`partition`),
    make them `slow`."""
    every: float = 5.0
    """Seconds between two faults."""
    count: int = 0
    """How many; 0: until the run is over."""
    seconds: float = 3.0
    """How long workers are slow or cut off."""
    calm: float = 5.0
    """Seconds without a fault before the first and after the last, with which the speed under faults is compared."""
    groups: str = ""
    """Only workers of these groups, e.g. actors,trainers; by default all."""
    seed: int = 0
    """Of the choice of faults and workers."""
    patience: float = 60.0
    """Seconds in which the run must have overcome a fault."""
    root: Path = ROOT
    """Directory below which runs are kept; those of a cluster are found there."""

    def run(self) -> int:
        from srl.checks import chaos
        from srl.controller.control_socket import ask, pick, running

        plan = chaos.ChaosPlan(
            tuple(word for word in self.faults.split(",") if word),
            self.every,
            self.count,
            self.seconds,
            tuple(word for word in self.groups.split(",") if word),
            self.seed,
            self.patience,
            self.calm,
        )
        _, runtime = pick(self.run_name, running(self.root))
        report = chaos.Chaos(lambda message: ask(runtime, message), plan, print).run()
        print(chaos.describe(report))
        return 0 if report.ok else 1


@dataclass(frozen=True)
class Agent:
    """Put this machine at the service of a run: `srl agent HOST:PORT`, as in `srl train ENV --bind HOST:PORT`."""

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
    label: tuple[str, ...] = ()
    """What groups of workers may ask for as their `node`, beside its name."""
    patience: float = 60.0
    """Seconds to try to join, and to join again when the connection is lost."""

    def run(self) -> int:
        from srl.schedulers.agent.join import HostResources, keep_joining
        from srl.schedulers.agent.secret import read_secret

        resources = HostResources(self.host, self.cpus, self.gpus, labels=self.label)
        return keep_joining(self.address, read_secret(self.secret_file), resources, self.patience, print)
