"""Messages between the two endpoints of a stream."""

from __future__ import annotations

from typing import Union

from srl.api.transport import Message


class AttachProducer(Message, frozen=True):
    """First message of a producer. It carries the producer's memory, if the channel shares memory."""

    producer: str
    num_blocks: int
    incarnation: int = 0


class ConsumerTerms(Message, frozen=True):
    """First message of a consumer of a broadcast."""

    waited_for: bool  # producers wait for its admissions
    room: int  # otherwise, it gets no further blocks while it holds this many


class BlockRequest(Message, frozen=True):
    """A producer asks for admission of `count` more blocks."""

    count: int


class BlockGrant(Message, frozen=True):
    """A consumer admits one block. Its actions must come from policy version `min_version` or newer."""

    ticket: int
    min_version: int


class Post(Message, frozen=True):
    """A producer has filled a block. Over TCP, the message carries the block's arrays."""

    block: int
    ticket: int
    sequence: int


class BlockDecline(Message, frozen=True):
    """A producer returns an unused admission."""

    ticket: int


class Release(Message, frozen=True):
    """A consumer returns a block to its producer."""

    block: int


PushMessage = Union[AttachProducer, ConsumerTerms, BlockRequest, BlockGrant, Post, BlockDecline, Release]


class AttachClient(Message, frozen=True):
    """First message of a client. It carries the memory of its blocks, if the channel shares memory."""

    client: str
    num_blocks: int


class Request(Message, frozen=True):
    """A client requests decisions for these rows of these blocks. Over TCP, the message carries their observations."""

    tag: int
    blocks: list[int]
    rows: list[int]
    min_version: int


class Relax(Message, frozen=True):
    """A client allows older versions to answer a request, because its blocks have lost their consumers."""

    tag: int
    min_version: int


class Reply(Message, frozen=True):
    """A server answers with decisions of policy version `version`, written to the blocks or, over TCP, attached."""

    tag: int
    version: int


RequestMessage = Union[AttachClient, Request, Relax, Reply]
