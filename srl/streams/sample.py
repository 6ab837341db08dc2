"""The sample stream: batches of remembered experience from replay workers to trainers, and feedback on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.api.block import STATE, STEP_ARRAYS, BlockSpec
from srl.api.dataflow import BatchFunction, Sequences, Transitions
from srl.api.streams import StreamEnd
from srl.api.worker import Context
from srl.base.tree import Array, ArraySpec
from srl.streams.sample_client import Client
from srl.streams.sample_relay import Relay
from srl.streams.sample_rows import RowsClient
from srl.streams.sample_server import Server

OBSERVATION, NEXT_OBSERVATION, DECISION, WEIGHT = "observation", "next_observation", "decision", "weight"
NUMBER = ArraySpec((), "float32")
FLAG = ArraySpec((), "bool")


@dataclass(frozen=True)
class SampleStream:
    """A stream between the trainers of a policy and its replay workers, or buffer workers between them. Both endpoints
    are built from this description. Arrays are sent by value."""

    name: str
    spec: BlockSpec
    unit: Transitions | Sequences
    shards: int = 1  # replay workers, each with its share of the blocks
    remote: bool = False  # whether to reach replay workers over TCP, as if they were on another host
    is_transformed: bool = False  # whether buffer workers have applied the transform of the dataflow

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise ValueError(f"stream {self.name}: shards must be at least 1, found {self.shards}")

    @property
    def prefix(self) -> str:
        return f"sample/{self.name}/"

    def end(self, side: Literal["source", "target"]) -> StreamEnd:
        return StreamEnd(self.name, "sample", side, "tcp" if self.remote else "host")

    def client(self, context: Context, rank: int, size: int) -> Client:
        """Return the client of trainer number `rank` of `size`."""
        return Client(self, context, rank, size)

    def server(self, context: Context) -> Server:
        return Server(self, context)

    def rows(self, context: Context, count: int) -> RowsClient:
        """Return the end of a reanalyze worker, which asks for up to `count` rows at a time."""
        return RowsClient(self, context, count)

    def relay(self, context: Context, replay: SampleStream, change: BatchFunction) -> Relay:
        """Return the endpoints of a buffer worker: the server of this stream, and a client of the stream `replay`.
        `change` is the function of a `BatchTransform`."""
        return Relay(self, replay, context, change)

    def leading(self, path: str, num_steps: int, count: int) -> tuple[int, ...]:
        """Return the leading axes of an array of minibatches with `count` units each."""
        unit = self.unit
        if isinstance(unit, Transitions) or path == WEIGHT:
            return num_steps, count
        lanes = count * unit.num_agents
        return (num_steps, lanes) if _root(path) == STATE else (num_steps, unit.rows + 1, lanes)

    def kind(self, path: str) -> ArraySpec | None:
        """Return the spec of an array of minibatches, without its leading axes; None if there is no such array."""
        root = _root(path)
        if root == NEXT_OBSERVATION:
            return self._blocks.get(OBSERVATION + path.removeprefix(NEXT_OBSERVATION))
        if root in (OBSERVATION, DECISION, STATE):
            return self._blocks.get(path)
        return {"discount": NUMBER, WEIGHT: NUMBER, "valid": FLAG, **STEP_ARRAYS}.get(path)

    def fits(self, path: str, array: Array, leading: tuple[int, ...]) -> bool:
        """Return whether an array of minibatches has the type and shape of its kind, after these `leading` axes."""
        kind = self.kind(path)
        return kind is not None and array.shape == (*leading, *kind.shape) and array.dtype.name == kind.dtype

    @property
    def _blocks(self) -> dict[str, ArraySpec]:
        return dict(self.spec.arrays())

    def unit_nbytes(self) -> int:
        """Return an upper bound for the bytes of one unit in a message."""
        row = sum(spec.nbytes for _, spec in self.spec.arrays())
        if isinstance(self.unit, Transitions):
            return 2 * row
        return (self.unit.rows + 2) * self.unit.num_agents * row


def _root(path: str) -> str:
    return path.partition("/")[0]
