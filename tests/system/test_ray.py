"""Runs on Ray. Tests with a real Ray are slow: `make test-cluster`."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.fake_agents import new_identity
from support.terminals import Terminal
from support.waiting import wait_for

from srl.api.experiment import Resources, WorkerGroup
from srl.experiments.options.keywords import make_options
from srl.experiments.session.cluster_site import hosts_scheduler, site_of
from srl.schedulers.engines import ray as ray_engine
from srl.schedulers.engines.components import Component
from srl.schedulers.engines.ray import RayEngine, RayError, bundle, check_bundles, check_ray
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.worker_logs import LogFiles

SMALL = ("--lanes", "8", "--horizon", "16", "--scheduler", "ray")


def test_a_component_becomes_a_bundle() -> None:
    assert bundle(Component(2, 3)) == {"CPU": 3}
    assert bundle(Component(1, 1, 2, 100, "fast")) == {"CPU": 1, "GPU": 2, "memory": 100 * 2**20, "fast": 0.001}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ([{"CPU": 5.0}], "no node of Ray can hold 5 CPU"),
        ([{"CPU": 3.0}] * 2, "needs 2 hosts with 3 CPU or more, but Ray's nodes have room for 1"),
        ([{"CPU": 3.0}, {"CPU": 3.0, "GPU": 1.0}], "needs 2 hosts with 3 CPU or more"),
        ([{"CPU": 1.0, "memory": 3.0 * 2**30}] * 2, "needs 2 hosts with 1 CPU + 3072 MB or more"),
        ([{"CPU": 4.0}, {"CPU": 2.0}, {"CPU": 1.0}], "needs 7 CPU on 3 hosts, but Ray's 2 nodes have 6 CPU"),
        ([{"CPU": 1.0, "fast": 0.001}], "no node of Ray can hold 1 CPU + 0.001 fast"),
        (
            [{"CPU": 3.0, "memory": 2.0**30}, {"CPU": 2.0, "GPU": 1.0}],
            "the 2 hosts of this run (3 CPU + 1024 MB; 2 CPU + 1 GPU) do not fit together",
        ),
    ],
)
def test_bundles_that_can_never_be_placed_are_refused(wanted: list[dict[str, float]], error: str) -> None:
    nodes = [{"CPU": 4.0, "GPU": 1.0, "memory": 4.0 * 2**30}, {"CPU": 2.0, "memory": 2.0 * 2**30}]
    with pytest.raises(RayError, match=re.escape(error)):
        check_bundles(wanted, nodes)
    check_bundles([{"CPU": 3.0, "GPU": 1.0}, {"CPU": 2.0}, {"CPU": 1.0}], nodes)


def test_a_search_finds_the_only_placement_and_refuses_if_there_is_none() -> None:
    nodes = [{"CPU": 4.0, "node:10.0.0.1": 1.0}, {"CPU": 4.0, "node:10.0.0.2": 1.0}]
    with pytest.raises(RayError, match="do not fit together"):
        check_bundles([{"CPU": 3.0}, {"CPU": 3.0}, {"CPU": 2.0}], nodes)
    check_bundles([{"CPU": 3.0}, {"CPU": 2.0}, {"CPU": 2.0}, {"CPU": 1.0}], nodes)
    # Both of the largest on one node would leave no place for the last.
    check_bundles([{"CPU": amount} for amount in (4.0, 4.0, 3.0, 3.0, 3.0, 3.0)], [{"CPU": 10.0}] * 2)
    many = [{"CPU": 1.0}] * 300 + [{"CPU": 2.0}] * 300
    check_bundles(many, [{"CPU": 4.0}] * 300)  # too many for a search


@pytest.fixture(autouse=True)
def _own_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings and the token of Ray in this test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)


class FakeRay:
    """The part of Ray that an engine uses. Tests end its calls."""

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
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Replaces Ray; engines look at it at every poll."""
    ray = FakeRay()
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    monkeypatch.setattr(ray_engine, "POLL_SECONDS", 0.0)
    return ray


def test_an_agent_that_left_or_failed_is_called_again(fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_engine, "FIRST_RETRY_SECONDS", 0.0)
    engine = RayEngine("", [Component(1, 2)])
    engine.start(lambda: new_identity().ticket("run", "127.0.0.1:1"))
    assert engine.poll() is None
    for error, problem in ((None, "was asked to leave"), (OSError("no controller"), "an agent on Ray failed: no con")):
        fake_ray.ended[fake_ray.calls[-1]] = error
        assert problem in str(engine.poll())
        assert engine.poll() is None
    assert len(fake_ray.calls) == 3
    engine.close()


def test_a_run_that_does_not_fit_on_the_remaining_nodes_is_reported_once(
    fake_ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "NODES_SECONDS", 0.0)
    engine = RayEngine("", [Component(1, 2)])
    engine.start(lambda: new_identity().ticket("run", "127.0.0.1:1"))
    fake_ray.alive = False
    problem = wait_for(engine.poll, "a report")
    assert problem == "Ray has lost a node: no node of Ray can hold 2 CPU; its nodes have nothing"
    assert not any(engine.poll() for _ in range(100))
    fake_ray.alive, before = True, fake_ray.looks
    assert wait_for(lambda: engine.poll() or fake_ray.looks > before + 2, "a look at the node that is back") is True
    fake_ray.alive = False
    assert wait_for(engine.poll, "another report") == problem
    engine.close()


def test_ray_started_here_requires_a_token_that_only_this_user_can_read(fake_ray: FakeRay, tmp_path: Path) -> None:
    engine = RayEngine("", [])
    engine.close()
    token = tmp_path / ".ray" / "auth_token"
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert len(token.read_text()) == 64
    assert (token.stat().st_mode & 0o777, token.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert engine.warning == ""


def test_a_cluster_of_ray_without_a_token_is_used_with_a_warning(fake_ray: FakeRay, tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").touch()
    engine = RayEngine("", [])
    engine.close()
    assert "RAY_AUTH_MODE" not in os.environ
    assert "Ray requires no token" in engine.warning
    assert not (tmp_path / ".ray").exists()


def test_a_wrong_or_used_port_leaves_no_connection_to_ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_ray = FakeRay()
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: fake_ray)
    groups = [WorkerGroup("actors", None, 1, Resources())]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected an address like"):
        site_of(make_options(scheduler="ray", bind="10.0.0.1:x"), groups, tmp_path / "logs")
    assert fake_ray.started == 0
    with socket.create_server(("127.0.0.2", 0)) as taken:
        options = make_options(scheduler="ray", bind=f"127.0.0.2:{taken.getsockname()[1]}")
        site = site_of(options, groups, tmp_path / "logs")
        assert site is not None
        with contextlib.closing(RunMemory.create(())) as memory, pytest.raises(OSError, match=r"127\.0\.0\.2"):
            hosts_scheduler(site, "run", options, memory, LogFiles(tmp_path), ())
    assert (fake_ray.started, fake_ray.shut_down) == (1, 1)


def test_the_error_for_a_missing_ray_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match=r"pip install 'srl-rl\[ray\]'"):
        check_ray("")


def test_an_address_without_ray_is_refused_before_anything_is_created(terminal: Terminal) -> None:
    pytest.importorskip("ray")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # bound, but not listening
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        ended = terminal.train("CartPole-v1", *SMALL, "--address", address).end()
    assert ended.code == 2
    assert f"no Ray at {address}" in ended.err
    assert not (terminal.root / "run").exists()
    assert "expected the address of Ray" in terminal.train("CartPole-v1", *SMALL, "--address", "here").end().err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_training_on_ray_leaves_nothing_behind_and_too_many_workers_are_refused(terminal: Terminal) -> None:
    pytest.importorskip("ray")
    refused = terminal.train("CartPole-v1", *SMALL, "--actors", "1000", name="large").end()
    assert refused.code == 2
    assert "no node of Ray can hold 1001 CPU" in refused.err
    ended = terminal.train("CartPole-v1", *SMALL, "--actors", "1", "--steps", "3000").end()
    assert ended.code == 0, ended.text
    assert "joined" in ended.out
