"""Commands for clusters and faults: `srl agent` and `srl chaos`."""

from __future__ import annotations

from dataclasses import dataclass

from srl.cli.parser import RunCommand, flag, positional


@dataclass(frozen=True)
class Agent:
    """Let this machine work for a run: `srl agent HOST:PORT`, the address of `srl train ENV --bind HOST:PORT`."""

    address: str = positional("HOST:PORT")
    """Address at which the run's controller listens."""
    secret_file: str = flag("FILE", "~/.srl/secret")
    """Copy of the secret file used by `srl train`."""
    cpus: float | None = None
    """Number of CPUs to offer. Default: all."""
    gpus: float | None = None
    """Number of GPUs to offer. Default: all."""
    host: str = flag("NAME", "")
    """Name of this machine in the run. Default: its host name."""
    label: tuple[str, ...] = flag("NAME ...", ())
    """Labels that worker groups may request as their `node`, besides the host name."""
    patience: float = 60.0
    """Seconds to try to join, and to rejoin when the connection is lost."""

    def run(self) -> int:
        from srl.schedulers.agent.join import HostResources, keep_joining
        from srl.transports.join_secret import read_secret

        resources = HostResources(self.host, self.cpus, self.gpus, labels=self.label)
        return keep_joining(self.address, read_secret(self.secret_file), resources, self.patience, print)


@dataclass(frozen=True)
class Chaos(RunCommand):
    """Inject faults into a run and check that it recovers: `srl chaos RUN --faults kill,stop --every 5 --count 20`.

    Checks that versions only increase, that no sample is older than its bound or used twice, that every update follows
    from its predecessor (with `srl train ENV --journal`), and that the run recovers from every fault. Exits with code 1
    if a check fails.
    """

    faults: str = flag("NAMES", "kill,stop,partition,slow")
    """Faults to inject into workers: `kill` ends the process, `stop` suspends it, `partition` closes its TCP
    connections, `slow` slows it down."""
    every: float = 5.0
    """Seconds between two faults."""
    count: int = 0
    """Number of faults; 0: until the run ends."""
    seconds: float = 3.0
    """Duration of `slow` and `partition`, in seconds."""
    calm: float = 5.0
    """Seconds before the first and after the last fault, to measure the normal speed."""
    groups: str = flag("NAMES", "")
    """Worker groups that receive faults, e.g. actors,trainers. Default: all."""
    seed: int = 0
    """Seed for choosing faults and workers."""
    patience: float = 60.0
    """Seconds within which the run must recover from a fault."""

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
        _, runtime = pick(self.name(), running(self.root))
        report = chaos.Chaos(lambda message: ask(runtime, message), plan, print).run()
        print(chaos.describe(report))
        return 0 if report.ok else 1
