"""Real clusters on one machine: a Slurm and a Ray whose nodes are the hosts of `support.namespaces` (root)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.namespaces import Hosts
from support.waiting import PATIENCE, wait_for

RAY_PORT = 6379
TAIL = 2000
"""Characters of a daemon's output that are shown if it does not start."""
RAY_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    # A lost node is detected after seconds instead of a minute; a node that only waits for a core is not lost.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}
FEATURE = "node"
"""Feature of every node of Slurm: groups that ask for it become a separate component."""
SLURM_CONF = """
ClusterName=srl
SlurmctldHost={head}({address})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=5
KillWait=2
MpiDefault=none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdSpoolDir={folder}/spool.%n
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def slurm(hosts: Hosts, cpus: int) -> Iterator[dict[str, str]]:
    """Run Slurm with the first host as its head and the others as its nodes. Yields the environment for commands."""
    folder = hosts.folder / "slurm"
    for name in ("state", *(f"spool.{name}" for name in hosts.names)):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(128))
    nodes = "\n".join(
        f"NodeName={name} NodeAddr={hosts.address(index)} CPUs={cpus} RealMemory=4000 Feature={FEATURE} State=UNKNOWN"
        for index, name in enumerate(hosts.names)
        if index
    )
    conf = folder / "slurm.conf"
    conf.write_text(SLURM_CONF.format(head=hosts.names[0], address=hosts.address(0), folder=folder, nodes=nodes))
    environment = {"SLURM_CONF": str(conf)}
    munge = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
    munge += ["--force", "--foreground", f"--socket={folder}/munge.socket"]
    daemons = [_daemon(hosts, 0, environment, "munged", *munge)]
    try:
        wait_for(lambda: (folder / "munge.socket").exists(), "munged")
        daemons.append(_daemon(hosts, 0, environment, "slurmctld", "-D", "-c"))
        daemons += [
            _daemon(hosts, index, environment, "slurmd", "-D", "-N", hosts.names[index])
            for index in range(1, len(hosts.names))
        ]
        idle = ("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N")
        wait_for(
            lambda: len(_ask(hosts, environment, *idle).stdout.split()) == len(hosts.names) - 1,
            lambda: f"Slurm's nodes\n{_output_tails(hosts)}",
        )
        yield environment
    finally:
        _end(daemons)


@contextmanager
def ray(hosts: Hosts, cpus: int) -> Iterator[str]:
    """Run Ray with a node on each host and the first as its head. Yields the address of the head."""
    head = f"{hosts.address(0)}:{RAY_PORT}"
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", f"--num-cpus={cpus}"]
    command += ["--object-store-memory=100000000", "--disable-usage-stats"]
    daemons = []
    try:
        for index in range(len(hosts.names)):
            role = [f"--address={head}"] if index else ["--head", f"--port={RAY_PORT}", "--include-dashboard=false"]
            # In a shared folder, two nodes that start at the same time would choose the same name for a socket.
            own = (f"--node-ip-address={hosts.address(index)}", f"--temp-dir={hosts.folder}/ray{index}")
            daemons.append(_daemon(hosts, index, RAY_ENVIRONMENT, *command, *role, *own))
            if not index:
                wait_for(lambda: _listens(hosts, RAY_PORT), lambda: f"Ray's head\n{_output_tails(hosts)}")
        counted = _ask(hosts, RAY_ENVIRONMENT, sys.executable, "-c", _COUNT.format(head, PATIENCE, len(hosts.names)))
        assert counted.returncode == 0, f"{counted.stderr}\n{_output_tails(hosts)}"
        yield head
    finally:
        _end(daemons)


_COUNT = """
import ray, sys, time
ray.init(address={!r}, log_to_driver=False, logging_level="ERROR")
deadline = time.monotonic() + {}
while len(there := [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]) < {}:
    if time.monotonic() > deadline:
        sys.exit("only these nodes of Ray started: " + ", ".join(there))
    time.sleep(0.1)
"""


def _daemon(hosts: Hosts, index: int, environment: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
    with (hosts.folder / f"{hosts.names[index]}-{Path(command[0]).name}.out").open("ab") as output:
        return subprocess.Popen(
            [*hosts.enter(index), *command], env={**os.environ, **environment}, stdout=output, stderr=output
        )


def _ask(hosts: Hosts, environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*hosts.enter(0), *command], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def _output_tails(hosts: Hosts) -> str:
    """Return the end of the output of each daemon."""
    outputs = {path.stem: path.read_text(errors="replace").strip() for path in sorted(hosts.folder.glob("*.out"))}
    return "\n".join(f"--- {name}:\n{text[-TAIL:]}" for name, text in outputs.items())


def _listens(hosts: Hosts, port: int) -> bool:
    """Whether a process listens at this port of the first host."""
    connect = ("bash", "-c", f"exec 3<>/dev/tcp/{hosts.address(0)}/{port}")
    return subprocess.run([*hosts.enter(0), *connect], capture_output=True, check=False).returncode == 0


def _end(daemons: list[subprocess.Popen[bytes]]) -> None:
    """End the daemons. Processes that they started are killed with their hosts."""
    for daemon in reversed(daemons):
        daemon.terminate()
    for daemon in daemons:
        try:
            daemon.wait(10.0)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
