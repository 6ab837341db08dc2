"""Distribution of parameters between hosts: three hosts in one thread, over TCP."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from support.waiting import until

from srl.base.tree import Array
from srl.parameters.host import HostParameterStore
from srl.parameters.relay import ParameterRelay
from srl.schedulers.hosts.agent_connections import FAN_OUT, relay_tree
from srl.transports.tcp import TcpTransport

SECRET = b"a secret of thirty-two bytes ..."


class HostUnderTest:
    def __init__(self) -> None:
        self.store = HostParameterStore.create("policy")
        self.woken = 0
        self.relay = ParameterRelay(TcpTransport(SECRET, "run"), {"policy": self.store}, lambda _: None, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def make(self, version: int) -> None:
        self.store.push(version, vector(version))
        self.relay.offer("policy", version, vector(version))

    def close(self) -> None:
        self.relay.close()
        self.store.memory.close()


def vector(version: int) -> Array:
    return np.full(5, version, np.float32)


@pytest.fixture
def chain() -> Iterator[list[HostUnderTest]]:
    """Three hosts; the second receives from the first, the third from the second."""
    hosts = [HostUnderTest() for _ in range(3)]
    for above, below in pairwise(hosts):
        below.relay.follow("policy", above.relay.address)
    yield hosts
    for host in hosts:
        host.close()
    hosts.clear()


def polls(hosts: list[HostUnderTest]) -> list[object]:
    return [host.relay.poll for host in hosts]


def test_versions_pass_down_the_chain_and_wake_waiting_workers(chain: list[HostUnderTest]) -> None:
    for version in (0, 1):
        chain[0].make(version)
        until(lambda version=version: chain[2].store.version == version, *polls(chain))  # type: ignore[misc, arg-type]
    pulled = chain[2].store.pull()
    assert pulled is not None
    assert pulled[1].tolist() == [1.0] * 5
    assert chain[2].woken == 2
    assert chain[0].woken == 0


def test_a_host_that_joins_late_gets_the_newest_version_at_once(chain: list[HostUnderTest]) -> None:
    chain[0].make(7)
    late = HostUnderTest()
    late.relay.follow("policy", chain[0].relay.address)
    until(lambda: late.store.version == 7, *polls([*chain, late]))  # type: ignore[arg-type]
    late.close()


def test_a_slow_host_skips_versions_and_does_not_delay_others(chain: list[HostUnderTest]) -> None:
    fast = HostUnderTest()
    fast.relay.follow("policy", chain[0].relay.address)
    chain[0].make(0)
    hosts = [*chain, fast]
    until(lambda: chain[1].store.version == 0 and fast.store.version == 0, *polls(hosts))  # type: ignore[arg-type]
    for version in range(1, 6):  # the second host does not poll
        chain[0].make(version)
        until(lambda version=version: fast.store.version == version, *polls([chain[0], fast]))  # type: ignore[misc, arg-type]
    woken = chain[1].woken
    until(lambda: chain[1].store.version == 5, *polls(hosts))  # type: ignore[arg-type]
    assert chain[1].woken - woken <= 2
    fast.close()


def test_a_host_that_lost_its_source_follows_a_new_one(chain: list[HostUnderTest]) -> None:
    chain[0].make(0)
    until(lambda: chain[1].store.version == 0, *polls(chain))  # type: ignore[arg-type]
    replacement = HostUnderTest()
    chain[0].relay.close()
    replacement.make(3)
    chain[1].relay.follow("policy", replacement.relay.address)
    until(lambda: chain[2].store.version == 3, *polls([replacement, *chain[1:]]))  # type: ignore[arg-type]
    replacement.close()


def test_the_fan_out_of_each_host_is_bounded() -> None:
    hosts = [f"h{number}" for number in range(100)]
    above = relay_tree("h17", hosts)
    assert set(above) == set(hosts) - {"h17"}
    assert max(list(above.values()).count(host) for host in hosts) == FAN_OUT

    def depth(host: str) -> int:
        return 0 if host == "h17" else 1 + depth(above[host])

    assert max(map(depth, hosts)) == 4
