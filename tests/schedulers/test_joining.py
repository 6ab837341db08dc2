"""A host that joins a run whose controller does not answer."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from srl.schedulers.joining import Offer, Unreachable, join


def test_a_network_that_swallows_everything_is_not_taken_for_a_refusal() -> None:
    """Who is unreachable is dialled again; who does not want us is not."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # a full backlog: the kernel drops every further call without a word
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        with pytest.raises(Unreachable, match="nothing came back"):
            join(f"127.0.0.1:{server.getsockname()[1]}", bytes(32), Offer(), reach=0.2)
