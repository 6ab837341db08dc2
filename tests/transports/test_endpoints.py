"""Listeners that are reachable in two ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.waiting import until

from srl.api.transport import Channel, Message
from srl.transports.endpoints import DualListener, address_from
from srl.transports.host import HostTransport
from srl.transports.tcp import TcpTransport


class Hello(Message, frozen=True):
    number: int


@pytest.mark.parametrize(("host", "shares"), [("a", True), ("b", False)])
def test_workers_of_the_same_host_share_memory_and_others_use_tcp(tmp_path: Path, host: str, shares: bool) -> None:
    near = HostTransport(tmp_path / "s")
    far = TcpTransport(b"a secret of thirty-two bytes ...", "run")
    listener = DualListener("a", near.listen("x", Hello), far.listen("x", Hello))
    address = address_from(host, listener.address)
    channel = (near if address.startswith("unix:") else far).connect(address, Hello)
    channel.send(Hello(7))
    assert channel.shares_memory is shares
    accepted: Channel = until(listener.accept, lambda: channel.flush())
    received = until(accepted.receive, lambda: channel.flush())
    assert received[0] == Hello(7)
    for closing in (channel, accepted, listener):
        closing.close()


def test_a_single_address_is_returned_as_it_is() -> None:
    assert address_from("a", "tcp:h:1") == "tcp:h:1"
