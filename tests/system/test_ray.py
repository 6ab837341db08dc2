"""Runs on Ray. Those that start a real one take long: `make test-cluster`."""

from __future__ import annotations

import socket
import sys

import pytest
from terminals import Terminal

from srl.schedulers.ray_engine import RayError, _bundle, check_ray
from srl.schedulers.slurm import Component

SMALL = ("--lanes", "8", "--horizon", "16", "--scheduler", "ray")


def test_what_a_component_needs_as_a_bundle() -> None:
    assert _bundle(Component(2, 3)) == {"CPU": 3}
    assert _bundle(Component(1, 1, 2, 100, "fast")) == {"CPU": 1, "GPU": 2, "memory": 100 * 2**20, "fast": 0.001}


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
