"""The relay between two sample streams: passes on what trainers and a replay worker send, and changes drawn batches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srl.api.dataflow import BatchFunction, arrays_of, batch_of, transformed
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import Context
from srl.base.meter import Counter
from srl.base.seeding import generator
from srl.base.state import NotResumable, State
from srl.base.tree import Array
from srl.streams.messages import (
    AttachSampler,
    Draw,
    DrawReply,
    Fill,
    FillReply,
    PriorityFeedback,
    Published,
    SampleMessage,
)

if TYPE_CHECKING:
    from srl.streams.sample import SampleStream

CONNECT_SECONDS = 0.02  # between two looks for a replay worker that is being replaced
WEIGHT = "weight"


@dataclass(eq=False)
class _Pair:
    """A connection of a trainer, and the connection to the replay worker on its behalf."""

    trainer: Channel
    attached: AttachSampler | None = None  # first message of the trainer
    replay: Channel | None = None
    address: str = ""  # of the replay worker


class Relay:
    """Implementation of :class:`srl.api.streams.SampleRelay`.

    Each trainer has its own connection to the replay worker with the index of this worker. Messages keep their tags, so
    that feedback reaches the units that it is about. If one of the two connections is lost, the other one is closed:
    the trainer then repeats its request, as it does when it has lost a replay worker.
    """

    def __init__(self, stream: SampleStream, replay: SampleStream, context: Context, change: BatchFunction) -> None:
        self._stream, self._replay, self._context, self._change = stream, replay, context, change
        self._random = generator(context.seed, "relay")
        self._index = context.worker_id.index
        name = f"{stream.prefix}{context.worker_id.name}"
        self._listener = context.listen(name, SampleMessage, remote=stream.remote)
        context.wake_on(self._listener)
        self._pairs: list[_Pair] = []
        self._next_look = 0.0

    @property
    def num_trainers(self) -> int:
        return sum(pair.replay is not None for pair in self._pairs)

    def poll(self) -> bool:
        while (channel := self._listener.accept()) is not None:
            self._context.wake_on(channel)
            self._pairs.append(_Pair(channel))
        self._look()
        worked = False
        for pair in list(self._pairs):
            try:
                worked |= self._pass_on(pair)
            except ChannelClosed:
                self._end(pair)
        if worked:
            self._context.meter.add(Counter.PROGRESS)
        return worked

    def _look(self) -> None:
        """End the pairs whose replay worker was replaced: its channel may still be open, because its host is frozen."""
        if self._context.threads and time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + CONNECT_SECONDS
        address = self._address()
        for pair in [pair for pair in self._pairs if address and pair.address not in ("", address)]:
            self._end(pair)

    def _address(self) -> str:
        """Return the address of the replay worker; empty while there is none."""
        for name, address in self._context.names.lookup(self._replay.prefix).items():
            if name.rpartition("/")[2] == str(self._index) and address.startswith("tcp:") == self._replay.remote:
                return address
        return ""

    def _pass_on(self, pair: _Pair) -> bool:
        if pair.attached is None:
            received = pair.trainer.receive()
            if received is None:
                return False
            if not isinstance(received[0], AttachSampler):
                raise ChannelClosed(f"{pair.trainer.peer} sent a request before it said who it is")
            pair.attached = received[0]
        replay = pair.replay or self._connect(pair, pair.attached)
        if replay is None:
            return False  # what the trainer sends waits in its channel
        worked = False
        while (received := pair.trainer.receive()) is not None:
            message, arrays, _ = received
            if not isinstance(message, (Published, Fill, Draw, PriorityFeedback)):
                raise ChannelClosed(f"{pair.attached.client} sent a {type(message).__name__}")
            replay.send(message, arrays)
            worked = True
        while (received := replay.receive()) is not None:
            message, arrays, _ = received
            if not isinstance(message, (FillReply, DrawReply)):
                raise ChannelClosed(f"{replay.peer} sent a {type(message).__name__}")
            if isinstance(message, DrawReply) and arrays:
                message, arrays = self._changed(replay, message, arrays)
            pair.trainer.send(message, arrays)
            worked = True
        replay.flush()
        pair.trainer.flush()
        return worked

    def _connect(self, pair: _Pair, attach: AttachSampler) -> Channel | None:
        address = self._address()
        if not address:
            return None
        try:
            channel = self._context.connect(address, SampleMessage)
        except ChannelClosed:
            return None  # registered, but closing or not yet listening
        pair.replay, pair.address = channel, address
        channel.send(attach)
        self._context.wake_on(channel)
        return channel

    def _changed(self, replay: Channel, message: DrawReply, arrays: list[Array]) -> tuple[DrawReply, list[Array]]:
        """Return minibatches as trainers get them."""
        given = dict(zip(message.paths, arrays, strict=False))
        weight = given.get(WEIGHT)
        if len(message.paths) != len(arrays) or weight is None or weight.ndim != 2:
            raise ChannelClosed(f"{replay.peer} sent {len(arrays)} arrays for {message.paths}")
        stream = self._stream
        for path, array in given.items():
            if not stream.fits(path, array, stream.leading(path, *weight.shape)):
                raise ChannelClosed(f"{replay.peer} sent {path} as {array.dtype}{array.shape}")
        changed = arrays_of(transformed(self._change, batch_of(stream.unit, given), self._random))
        return DrawReply(message.tag, list(changed)), list(changed.values())

    def _end(self, pair: _Pair) -> None:
        self._pairs.remove(pair)
        pair.trainer.close()
        if pair.replay is not None:
            pair.replay.close()

    def state(self) -> State:
        raise NotResumable("a buffer worker cannot be saved with the requests in progress")

    def restore(self, state: State) -> bool:
        raise NotResumable("a buffer worker cannot be restored with the requests in progress")

    def close(self) -> None:
        for pair in list(self._pairs):
            self._end(pair)
        self._listener.close()
