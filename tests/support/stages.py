"""Both ends of streams in one thread, over any transport, for tests that act as producers and consumers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from srl.api.block import BlockMemory, BlockSpec
from srl.api.streams import OpenBlock, PostedBlock
from srl.base.tree import ArraySpec
from srl.streams.push import PushStream
from srl.streams.push_consumer import Consumer
from srl.streams.push_producer import Producer
from srl.streams.request import RequestStream
from srl.streams.request_client import Client
from srl.streams.request_server import Server
from srl.testing.contexts import World
from support.counting import DECISION_SPEC
from support.waiting import until

SPEC = BlockSpec(2, 2, ArraySpec((3,), "float32"), DECISION_SPEC)
"""Spec of a block with two steps of two lanes."""


class Stage:
    """Creates the ends of streams in its own `World` and closes them all. `directory` holds Unix sockets."""

    def __init__(self, kind: Literal["inproc", "host", "tcp"], directory: Path) -> None:
        self.remote = kind == "tcp"
        self.world = World(directory / "s" if kind == "host" else None)
        self._stack = ExitStack()

    def stream(self, spec: BlockSpec = SPEC, **options: Any) -> PushStream:
        return PushStream("samples", spec, remote=self.remote, **{"batch_blocks": 1, "max_lag": None, **options})

    def producer(
        self, stream: PushStream, index: int = 0, num_open: int = 1, num_scratch: int = 0, incarnation: int = 0
    ) -> Producer:
        producer = stream.producer(self.world.context("actors", index, incarnation), num_open, num_scratch)
        self._stack.callback(producer.close)
        return producer

    def consumer(self, stream: PushStream, index: int = 0, incarnation: int = 0, group: str = "trainers") -> Consumer:
        consumer = stream.consumer(self.world.context(group, index, incarnation))
        self._stack.callback(consumer.close)
        return consumer

    def requests(self, spec: BlockSpec = SPEC, max_batch: int = 0) -> RequestStream:
        return RequestStream("decisions", spec, self.remote, max_batch)

    def memory(self, num_blocks: int = 4, spec: BlockSpec = SPEC) -> BlockMemory:
        memory = BlockMemory.create("asked", spec, num_blocks)
        self._stack.callback(memory.close)
        return memory

    def client(self, stream: RequestStream, memory: BlockMemory, index: int = 0) -> Client:
        client = stream.client(self.world.context("actors", index), memory)
        self._stack.callback(client.close)
        return client

    def server(self, stream: RequestStream, index: int = 0, incarnation: int = 0) -> Server:
        server = stream.server(self.world.context("policies", index, incarnation))
        self._stack.callback(server.close)
        return server

    def close(self) -> None:
        self._stack.close()
        self.world.close()


def fill(opened: OpenBlock, number: int, version: int = 0) -> None:
    """Set every element of the block to `number`, with decisions of `version`."""
    for path, array in opened.block.arrays.items():
        array[...] = version if path == "version" else number


def opened_by(producer: Producer, *consumers: Consumer) -> OpenBlock:
    opened: OpenBlock = until(producer.open, producer.poll, *(consumer.poll for consumer in consumers))
    return opened


def taken_by(consumer: Consumer, update: int, *producers: Producer) -> list[PostedBlock]:
    polls = (producer.poll for producer in producers)
    taken: list[PostedBlock] = until(lambda: consumer.take(update), consumer.poll, *polls)
    return taken


def settle(*ends: Producer | Consumer) -> None:
    """Poll for some rounds, so that all messages in transit arrive."""
    for _ in range(30):
        for end in ends:
            end.poll()


def send_block(producer: Producer, consumer: Consumer, number: int, version: int = 0, *others: Consumer) -> None:
    opened = opened_by(producer, consumer, *others)
    fill(opened, number, version)
    producer.post(opened)
