"""The request stream: carries observations to policy workers and their decisions back, within a host or over TCP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.api.block import BlockMemory, BlockSpec
from srl.api.streams import StreamEnd
from srl.api.worker import Context
from srl.streams.request_client import Client
from srl.streams.request_server import Server


@dataclass(frozen=True)
class RequestStream:
    """A stream between actors and policy workers. Both endpoints are built from this description."""

    name: str
    spec: BlockSpec
    remote: bool = False  # whether to reach servers over TCP, as if they were on another host
    max_batch: int = 0  # maximum number of lanes in one batch; 0: no limit

    @property
    def prefix(self) -> str:
        return f"request/{self.name}/"

    def end(self, side: Literal["source", "target"]) -> StreamEnd:
        return StreamEnd(self.name, "request", side, "tcp" if self.remote else "host")

    def client(self, context: Context, memory: BlockMemory) -> Client:
        """Return a client that requests decisions for cells in blocks of `memory`."""
        return Client(self, context, memory)

    def server(self, context: Context) -> Server:
        return Server(self, context)
