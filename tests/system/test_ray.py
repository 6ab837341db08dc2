"""Runs on Ray. Those that start a real one take long: `make test-cluster`."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.terminals import Terminal
from support.waiting import wait_for

from srl.api.experiment import Resources, WorkerGroup
from srl.experiments.options.keywords import make_options
from srl.experiments.session.hosting import ground_of, hosts_scheduler
from srl.schedulers.engines import ray as ray_engine
from srl.schedulers.engines.ray import RayEngine, check_ray
from srl.schedulers.engines.ray_resources import RayError, bundle, check_room
from srl.schedulers.engines.slurm_commands import Component
from srl.schedulers.local.run_memory import RunMemory

SMALL = ("--lanes", "8", "--horizon", "16", "--scheduler", "ray")


def test_what_a_component_needs_as_abundle() -> None:
    assert bundle(Component(2, 3)) == {"CPU": 3}
    assert bundle(Component(1, 1, 2, 100, "fast")) == {"CPU": 1, "GPU": 2, "memory": 100 * 2**20, "fast": 0.001}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ([{"CPU": 5.0}], "no node of Ray could ever hold 5 CPU"),
        ([{"CPU": 3.0}] * 2, "wants 2 hosts with 3 CPU or more, and Ray's nodes have room for 1"),
        ([{"CPU": 3.0}, {"CPU": 3.0, "GPU": 1.0}], "wants 2 hosts with 3 CPU or more"),
        ([{"CPU": 1.0, "memory": 3.0 * 2**30}] * 2, "wants 2 hosts with 1 CPU + 3072 MB or more"),
        ([{"CPU": 4.0}, {"CPU": 2.0}, {"CPU": 1.0}], "wants 7 CPU on 3 hosts, and Ray's 2 nodes have 6 CPU"),
        ([{"CPU": 1.0, "fast": 0.001}], "no node of Ray could ever hold 1 CPU + 0.001 fast"),
        (
            [{"CPU": 3.0, "memory": 2.0**30}, {"CPU": 2.0, "GPU": 1.0}],
            "the 2 hosts of this run (3 CPU + 1024 MB; 2 CPU + 1 GPU) do not fit beside each other",
        ),
    ],
)
def test_what_can_never_be_placed_is_said_at_once(wanted: list[dict[str, float]], says: str) -> None:
    nodes = [{"CPU": 4.0, "GPU": 1.0, "memory": 4.0 * 2**30}, {"CPU": 2.0, "memory": 2.0 * 2**30}]
    with pytest.raises(RayError, match=re.escape(says)):
        check_room(wanted, nodes)
    check_room([{"CPU": 3.0, "GPU": 1.0}, {"CPU": 2.0}, {"CPU": 1.0}], nodes)


def test_shapes_that_fit_only_in_one_way_are_found_and_those_that_do_not_are_said() -> None:
    nodes = [{"CPU": 4.0, "node:10.0.0.1": 1.0}, {"CPU": 4.0, "node:10.0.0.2": 1.0}]
    with pytest.raises(RayError, match="do not fit beside each other"):
        check_room([{"CPU": 3.0}, {"CPU": 3.0}, {"CPU": 2.0}], nodes)
    check_room([{"CPU": 3.0}, {"CPU": 2.0}, {"CPU": 2.0}, {"CPU": 1.0}], nodes)
    # Both of the largest on one node would leave no place for the last.
    check_room([{"CPU": amount} for amount in (4.0, 4.0, 3.0, 3.0, 3.0, 3.0)], [{"CPU": 10.0}] * 2)
    many = [{"CPU": 1.0}] * 300 + [{"CPU": 2.0}] * 300
    check_room(many, [{"CPU": 4.0}] * 300)  # no search as deep as that


class PlayedRay:
    """As much of Ray as an engine uses; calls end when they are told to."""

    def __init__(self) -> None:
        self.alive = True
        self.looks = self.started = self.shut_down = 0
        self.calls: list[object] = []
        self.ended: dict[object, Exception | None] = {}
        self.exceptions = SimpleNamespace(RayError=OSError)
        strategy = SimpleNamespace(PlacementGroupSchedulingStrategy=lambda group, index: None)
        group = SimpleNamespace(wait=lambda seconds: True)
        self.util = SimpleNamespace(
            scheduling_strategies=strategy,
            placement_group=lambda bundles, strategy: group,
            remove_placement_group=lambda group: None,
        )

    def init(self, **options: object) -> None:
        self.started += 1

    def shutdown(self) -> None:
        self.shut_down += 1

    def kill(self, actor: object) -> None: ...

    def nodes(self) -> list[dict[str, object]]:
        self.looks += 1
        return [{"Resources": {"CPU": 4.0}, "Alive": self.alive}]

    def remote(self, kind: type) -> SimpleNamespace:
        actor = SimpleNamespace(serve=SimpleNamespace(remote=self._call))
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda: actor))

    def _call(self, *arguments: object) -> object:
        self.calls.append(object())
        return self.calls[-1]

    def wait(self, calls: list[object], num_returns: int, timeout: float) -> tuple[list[object], list[object]]:
        return [call for call in calls if call in self.ended], [call for call in calls if call not in self.ended]

    def get(self, call: object) -> None:
        error = self.ended[call]
        if error is not None:
            raise error


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedRay:
    """In place of Ray; engines look at it whenever they are asked."""
    ray = PlayedRay()
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    monkeypatch.setattr(ray_engine, "LOOK_SECONDS", 0.0)
    return ray


def test_an_agent_that_left_or_failed_is_called_again(played: PlayedRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "FIRST_RETRY_SECONDS", 0.0)
    engine = RayEngine("", [Component(1, 2)])
    engine.start("127.0.0.1:1", b"")
    assert engine.poll() is None
    for error, says in ((None, "was asked to leave"), (OSError("no controller"), "an agent on Ray failed: no con")):
        played.ended[played.calls[-1]] = error
        assert says in str(engine.poll())
        assert engine.poll() is None
    assert len(played.calls) == 3
    engine.close()


def test_what_the_nodes_that_are_left_cannot_hold_is_said_once(
    played: PlayedRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "ROOM_SECONDS", 0.0)
    engine = RayEngine("", [Component(1, 2)])
    engine.start("127.0.0.1:1", b"")
    played.alive = False
    said = wait_for(engine.poll, "it looks again")
    assert said == "Ray has lost a node: no node of Ray could ever hold 2 CPU; there are none"
    assert not any(engine.poll() for _ in range(100))
    played.alive, before = True, played.looks
    assert wait_for(lambda: engine.poll() or played.looks > before + 2, "it has seen that the node is back") is True
    played.alive = False
    assert wait_for(engine.poll, "and lost again") == said
    engine.close()


def test_a_port_that_is_taken_or_wrong_leaves_no_connection_to_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    played = PlayedRay()
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: played)
    groups = [WorkerGroup("actors", None, 1, Resources())]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wanted an address like"):
        ground_of(make_options(scheduler="ray", bind="10.0.0.1:x"), groups, Path())
    assert played.started == 0
    with socket.create_server(("127.0.0.2", 0)) as taken:
        options = make_options(scheduler="ray", bind=f"127.0.0.2:{taken.getsockname()[1]}")
        ground = ground_of(options, groups, Path())
        assert ground is not None
        with contextlib.closing(RunMemory.create(())) as memory, pytest.raises(OSError, match=r"127\.0\.0\.2"):
            hosts_scheduler(ground, "run", options, memory, Path(), ())
    assert (played.started, played.shut_down) == (1, 1)


def test_an_engine_that_is_not_installed_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match=r"pip install 'srl\[ray\]'"):
        check_ray("")


def test_an_address_where_nobody_is_is_said_before_anything_is_made(terminal: Terminal) -> None:
    pytest.importorskip("ray")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # nobody listens
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        ended = terminal.train("CartPole-v1", *SMALL, "--address", address).end()
    assert ended.code == 2
    assert f"no Ray at {address}" in ended.err
    assert not (terminal.root / "run").exists()
    assert "wanted an address" in terminal.train("CartPole-v1", *SMALL, "--address", "here").end().err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_training_on_ray_leaves_nothing_and_too_much_is_refused(terminal: Terminal) -> None:
    pytest.importorskip("ray")
    refused = terminal.train("CartPole-v1", *SMALL, "--actors", "1000", name="large").end()
    assert refused.code == 2
    assert "no node of Ray could ever hold 1001 CPU" in refused.err
    ended = terminal.train("CartPole-v1", *SMALL, "--actors", "1", "--steps", "3000").end()
    assert ended.code == 0, ended.text
    assert "joined" in ended.out
