"""The line between a worker's process and its supervisor."""

from __future__ import annotations

import socket
from typing import Any, Union

from srl.api.control import FromWorker, ToWorker
from srl.api.transport import Channel
from srl.base.wire import Codec
from srl.transports.endpoints import Refusals
from srl.transports.host_channel import HostChannel

Messages: Any = Union[FromWorker, ToWorker]


def control_channel(sock: socket.socket, peer: str) -> Channel:
    """One end of a socket pair as a channel for control messages."""
    sock.setblocking(False)
    return HostChannel(sock, Codec(Messages), peer, Refusals())
