"""Runs on a real Slurm and a real Ray whose nodes are network namespaces, one of which is powered off.

The tests need root and the engines (`apt-get install slurm-wlm munge`, `pip install ray`), and print how long recovery
took.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.engines import FEATURE, ray, slurm
from support.namespaces import Hosts, hosts
from support.terminals import SRL, Command, Terminal, kill, worker
from support.waiting import wait_for

from srl.storage import checkpoints
from srl.storage.run_ownership import newest
from srl.storage.update_journal import check, read, updates

RUN = (
    *("CartPole-v1", "--steps", "1000000000", "--hosts", "3", "--actors", "5", "--lanes", "16", "--horizon", "32"),
    *("--recipe", "none", "--ppo.epochs", "4", "--journal", "--checkpoint-seconds", "5"),
)
LEARN_SECONDS = 240.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nsenter") is None, reason="namespaces need root"),
]


@pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed")
def test_a_run_on_slurm_survives_the_loss_of_a_node_and_leaves_nothing_behind(terminal: Terminal) -> None:
    with hosts(4) as four, slurm(four, cpus=2) as environment:
        commands = (*four.enter(0), "env", *(f"{name}={value}" for name, value in environment.items()))
        lose_a_node(terminal, four, commands, ("--scheduler", "slurm"), controller="host1")


def test_a_run_on_ray_survives_the_loss_of_a_node_and_leaves_nothing_behind(terminal: Terminal) -> None:
    pytest.importorskip("ray")
    with hosts(3) as three, ray(three, cpus=2) as address:
        lose_a_node(terminal, three, three.enter(0), ("--scheduler", "ray", "--address", address), controller="host0")


def test_trainers_on_two_hosts_have_equal_parameters_and_survive_the_death_of_one(terminal: Terminal) -> None:
    shape = ("--hosts", "2", "--trainers", "2", "--actors", "2", "--lanes", "16", "--horizon", "32", "--journal")
    with hosts(2) as two:
        address = f"{two.address(0)}:7700"
        worker_id = ("--scheduler", "hosts", "--bind", address)
        run = ("CartPole-v1", "--recipe", "none", "--ppo.epochs", "1", "--steps", "1000000000", "--name", "run")
        train = terminal.launch([*two.enter(0), SRL, "train", *run, "--root", str(terminal.root), *shape, *worker_id])
        join = ("agent", str(terminal.join_file), "--cpus", "2")
        agent = terminal.launch([*two.enter(1), SRL, *join])
        train.wait(lambda status: "neither authenticated nor encrypted" in " ".join(status["messages"]), "a warning")
        before = train.wait(lambda status: status["version"] >= 100, "100 updates")
        there = {one["name"]: one["host"] for one in before["workers"]}
        assert there["trainers/0"] != there["trainers/1"], there
        began = time.monotonic()
        kill(worker(before, "trainers/1")["pid"])
        train.wait(lambda status: status["version"] > before["version"] + 20, "more updates")
        print(f"two trainers: 20 updates after the death of one {time.monotonic() - began:.1f} s later")
        train.wait(lambda status: worker(status, "trainers/1")["progress"] > 0, "progress of its replacement")
        assert terminal.run("stop", "run").code == 0
        assert train.end().code == 130
        assert agent.end().code == 0
    entries = updates(read(terminal.root / "run" / "journal.jsonl"))
    assert check(entries, before["max_lag"]) == []
    digests = {rank: {entry.update: entry.digest for entry in entries if entry.rank == rank} for rank in range(2)}
    both = digests[0].keys() & digests[1].keys()
    print(f"two trainers: {len(both)} updates of both, all bit-equal")
    assert len(both) >= 100
    assert all(digests[0][update] == digests[1][update] for update in both)


@pytest.mark.skipif(shutil.which("slurmctld") is None, reason="Slurm is not installed")
@pytest.mark.parametrize("lost", ["the controller's node", "another node"])
def test_a_heterogeneous_job_that_loses_a_node_is_queued_again(terminal: Terminal, lost: str) -> None:
    """All components are queued again, and the next attempt starts from the last checkpoint."""
    shape = ("--hosts", "3", "--actors", "4", "--lanes", "16", "--horizon", "32", "--recipe", "none")
    worker_id = ("--scheduler", "slurm", "--resources", f"actors=node:{FEATURE}", "--checkpoint-seconds", "2")
    run = terminal.root / "run"
    with hosts(5) as five, slurm(five, cpus=2) as environment:
        enter = (*five.enter(0), "env", *(f"{name}={value}" for name, value in environment.items()))
        train = start_run(terminal, enter, "CartPole-v1", "--steps", "1000000000", *shape, *worker_id)
        there = worker_ids(train.until(lambda status: len(worker_ids(status)) == 3, "three hosts"))
        assert "#SBATCH hetjob" in (run / "cluster" / "job.sh").read_text()
        checkpoint = wait_for(lambda: checkpoints.latest(run / "checkpoints"), "a checkpoint")
        before = checkpoints.read(checkpoint)[1]["policies"]["policy"]["version"]
        address = (run / "cluster" / "address").read_text().removeprefix("tls:").rpartition(":")[0]
        attempt = newest(run)[0]
        controller = next(name for index, name in enumerate(five.names) if five.address(index) == address)
        victim = controller if "controller" in lost else next(name for name in there if name != controller)
        five.power_off(five.names.index(victim))
        began = time.monotonic()
        train.until(lambda status: status["reason"] or len(worker_ids(status)) < 3, "a report of the loss")
        train.until(lambda status: status["state"] == "queued", "the job in the queue again")
        print(f"slurm: queued again {time.monotonic() - began:.1f} s after the loss of {lost}")
        wait_for(lambda: newest(run)[0] != attempt, "a second attempt")
        train.until(lambda status: len(worker_ids(status)) == 3 and status["version"] > before, "more updates")
        print(f"slurm: an update {time.monotonic() - began:.1f} s after the loss of {lost}")
        stopped = train.command("stop", "run").end()
        assert stopped.code == 0, stopped.text
        assert train.training.end().code == 130


@dataclass
class ClusterRun:
    """A run on a cluster, and commands on its head node that query it."""

    terminal: Terminal
    enter: tuple[str, ...]
    training: Command
    seen: dict[str, Any] = field(default_factory=dict)

    def command(self, name: str, *arguments: str) -> Command:
        return self.terminal.launch([*self.enter, SRL, name, *arguments, "--root", str(self.terminal.root)])

    def status(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any] | None:
        assert self.training.process.poll() is None, f"the run has ended: {self.training.end().text}"
        shown = self.command("ps", "--json").end().out
        found = json.loads(shown) if shown else None
        self.seen = found or self.seen
        return found if found and condition(found) else None

    def until(self, condition: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        return wait_for(lambda: self.status(condition), lambda: f"{what}; last status: {self.seen}")


def start_run(terminal: Terminal, enter: tuple[str, ...], *arguments: str) -> ClusterRun:
    root = ("--root", str(terminal.root), "--name", "run")
    return ClusterRun(terminal, enter, terminal.launch([*enter, SRL, "train", *arguments, *root]))


def lose_a_node(
    terminal: Terminal, hosts: Hosts, enter: tuple[str, ...], engine: tuple[str, ...], controller: str
) -> None:
    began = time.monotonic()

    def report(what: str) -> None:
        nonlocal began
        print(f"{engine[1]}: {what} after {time.monotonic() - began:.1f} s")
        began = time.monotonic()

    train = start_run(terminal, enter, *RUN, *engine)
    before = train.until(lambda status: len(worker_ids(status)) == 3 and status["version"] > 5, "three hosts")
    report("training on three hosts")
    victim = next(
        (name for name in worker_ids(before) if name != controller and "trainers/0" in worker_ids(before)[name]), ""
    )
    victim = victim or next(name for name in worker_ids(before) if name != controller)
    print(f"{engine[1]}: {worker_ids(before)}; {victim} is powered off")
    hosts.power_off(hosts.names.index(victim))
    began = time.monotonic()
    back = train.until(lambda status: all_work(status, victim, before), "all workers on other nodes")
    after = train.until(lambda status: status["version"] > back["version"], "another update")
    report(f"{len(worker_ids(before)[victim])} workers of {victim} run on other nodes and an update followed")
    assert after["version"] > before["version"]
    deadline = time.monotonic() + LEARN_SECONDS
    while train.status(lambda found: (found["return_mean"] or 0.0) >= 475) is None:
        assert time.monotonic() < deadline, "the return did not reach 475"
    report("return 475")
    stopped = train.command("stop", "run").end()
    assert stopped.code == 0, stopped.text
    report("the end of `srl stop`")
    wait_for(lambda: not terminal.processes(), lambda: f"the end of {terminal.processes()}")
    report("the end of all processes")
    assert train.training.end().code == 130
    assert check(read(terminal.root / "run" / "journal.jsonl"), after["max_lag"]) == []


def worker_ids(status: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in status["workers"]:
        if one["progress"] > 0:
            found.setdefault(one["host"], []).append(one["name"])
    return found


def all_work(status: dict[str, Any], victim: str, before: dict[str, Any]) -> bool:
    now = worker_ids(status)
    return victim not in now and sum(map(len, now.values())) == sum(map(len, worker_ids(before).values()))
