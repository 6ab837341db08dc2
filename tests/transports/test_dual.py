from __future__ import annotations

from pathlib import Path

import pytest

from srl.api.transport import Channel, Message
from srl.testing.contexts import until
from srl.transports.dual import EitherListener, nearest_way
from srl.transports.host import HostTransport
from srl.transports.tcp import TcpTransport


class Hello(Message, frozen=True):
    number: int


@pytest.mark.parametrize(("host", "shares"), [("a", True), ("b", False)])
def test_an_endpoint_is_reached_by_memory_from_its_host_and_by_tcp_from_others(
    tmp_path: Path, host: str, shares: bool
) -> None:
    near = HostTransport(tmp_path / "s")
    far = TcpTransport(b"a secret of thirty-two bytes ...", "run")
    listener = EitherListener("a", near.listen("x", Hello), far.listen("x", Hello))
    way = nearest_way(listener.address, host)
    channel = (near if way.startswith("unix:") else far).connect(way, Hello)
    channel.send(Hello(7))
    assert channel.shares_memory is shares
    accepted: Channel = until(listener.accept, lambda: channel.flush())
    received = until(accepted.receive, lambda: channel.flush())
    assert received[0] == Hello(7)
    for closing in (channel, accepted, listener):
        closing.close()


def test_a_plain_address_is_its_own_way() -> None:
    assert nearest_way("tcp:h:1", "a") == "tcp:h:1"
