"""Commands for clusters and faults: `srl agent` and `srl chaos`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from srl.cli.parser import RunCommand, flag, positional


@dataclass(frozen=True)
class Agent:
    """Let this machine work for a run: `srl agent FILE`, the join file of `srl train ENV --scheduler hosts`."""

    join_file: str = positional("FILE")
    """Join file of the run, or a copy of it (mode 600). It may appear later, when the run starts."""
    address: str = flag("HOST:PORT", "")
    """Address of the run's controller, if this machine reaches it at another than the one in the file."""
    cpus: float | None = None
    """Number of CPUs to offer. Default: all."""
    gpus: float | None = None
    """Number of GPUs to offer. Default: all."""
    host: str = flag("NAME", "")
    """Name of this machine in the run. Default: its host name."""
    label: tuple[str, ...] = flag("NAME ...", ())
    """Labels that worker groups may request as their `node`, besides the host name."""
    patience: float = 60.0
    """Seconds to wait for the join file and the controller, and to try to rejoin when the connection is lost."""

    def run(self) -> int:
        from srl.schedulers.agent.join import HostResources, keep_joining
        from srl.transports.join_ticket import JoinTicket, read_ticket

        def read() -> JoinTicket:
            ticket = read_ticket(self.join_file)
            return replace(ticket, address=self.address) if self.address else ticket

        resources = HostResources(self.host, self.cpus, self.gpus, labels=self.label)
        return keep_joining(read, resources, self.patience, print)


@dataclass(frozen=True)
class Chaos(RunCommand):
    """Inject faults into a run and check that it recovers: `srl chaos RUN --faults kill,stop --every 5 --count 20`.

    Checks that versions only increase, that no sample is older than its bound or used twice, that every update follows
    from its predecessor (with `srl train ENV --journal`), and that the run recovers from every fault. Exits with code 1
    if a check fails.
    """

    faults: str = flag("NAMES", "kill,stop,partition,slow")
    """Faults to inject. Into a worker: `kill` ends its process, `stop` suspends it, `partition` closes its TCP
    connections, `slow` slows it down. Into the host of a worker: `freeze-zygote` suspends the process that starts
    workers and kills the worker, `freeze-host` suspends the agent and all its workers, `slow-link` limits each TCP
    connection to 100 kB/s. `flood` makes 500 connections per second, without a secret, to the run's ports on the
    loopback interface. `full-disk` makes the run's files fail to be written, and `corrupt-checkpoint` changes one byte
    of the newest checkpoint; the run has recovered when it has written another. A fault that is not possible in this
    run is skipped, with a message."""
    every: float = 5.0
    """Seconds between two faults."""
    count: int = 0
    """Number of faults; 0: until the run ends."""
    seconds: float = 3.0
    """Duration of the temporary faults, in seconds. These are all but `kill`, `stop`, `freeze-zygote` and
    `corrupt-checkpoint`."""
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
        from srl.experiments.session.slurm_queue import submitted

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
        _, runtime = pick(self.name(), running(submitted(self.root)), self.root)
        report = chaos.Chaos(lambda message: ask(runtime, message), plan, print).run()
        print(chaos.describe(report))
        return 0 if report.ok else 1
