"""What the two ends of a push stream say to each other."""

from __future__ import annotations

from typing import Union

from srl.api.transport import Message


class Offer(Message, frozen=True):
    """Producer: here I am, and this is my memory."""

    producer: str
    num_blocks: int
    incarnation: int = 0


class Terms(Message, frozen=True):
    """Consumer of a broadcast: count me in. Producers wait for me, or I miss what comes while I keep `room` blocks."""

    waited_for: bool
    room: int


class Want(Message, frozen=True):
    """Producer: I could fill this many more blocks."""

    count: int


class Grant(Message, frozen=True):
    """Consumer: fill one; versions older than `min_version` may not decide in it."""

    ticket: int
    min_version: int


class Post(Message, frozen=True):
    """Producer: it is full. Over TCP the block's arrays follow."""

    block: int
    ticket: int
    sequence: int
    oldest_version: int


class Decline(Message, frozen=True):
    """Producer: I shall not fill it after all."""

    ticket: int


class Release(Message, frozen=True):
    """Consumer: I am done with it."""

    block: int


Messages = Union[Offer, Terms, Want, Grant, Post, Decline, Release]
