"""Messages between the two ends of streams."""

from __future__ import annotations

from typing import Union

from srl.api.transport import Message


class AttachProducer(Message, frozen=True):
    """First message of a producer; its memory comes with it, if the channel shares memory."""

    producer: str
    num_blocks: int
    incarnation: int = 0


class Terms(Message, frozen=True):
    """First message of a consumer of a broadcast. With `waited_for`, producers wait for its admissions; otherwise it
    misses blocks while it holds `room` of them."""

    waited_for: bool
    room: int


class Want(Message, frozen=True):
    """A producer asks for admission of `count` more blocks."""

    count: int


class Grant(Message, frozen=True):
    """A consumer admits one block; versions older than `min_version` may not decide in it."""

    ticket: int
    min_version: int


class Post(Message, frozen=True):
    """A producer has filled a block. Over TCP the block's arrays come with it."""

    block: int
    ticket: int
    sequence: int


class Decline(Message, frozen=True):
    """A producer gives an admission back unused."""

    ticket: int


class Release(Message, frozen=True):
    """A consumer gives a block back."""

    block: int


PushMessage = Union[AttachProducer, Terms, Want, Grant, Post, Decline, Release]


class AttachClient(Message, frozen=True):
    """First message of a client; the memory of its blocks comes with it, if the channel shares memory."""

    client: str
    num_blocks: int


class Request(Message, frozen=True):
    """A client asks for decisions in these rows of these blocks. Over TCP the observations of all cells come with it,
    concatenated."""

    tag: int
    blocks: list[int]
    rows: list[int]
    min_version: int


class Reply(Message, frozen=True):
    """A server has decided, with parameters of `version`. On a host the decisions are in the blocks; over TCP they
    come with the message."""

    tag: int
    version: int


RequestMessage = Union[AttachClient, Request, Reply]
