"""Messages between the two endpoints of a stream."""

from __future__ import annotations

from typing import Annotated, Union

import msgspec

from srl.api.block import Episodes
from srl.api.streams import Inserted
from srl.api.transport import Message

MAX_DRAWN = 2**24
"""Maximum number of minibatches in an update, and of units in a minibatch."""


class AttachProducer(Message, frozen=True):
    """First message from a producer, with its memory if the channel shares memory."""

    producer: str
    num_blocks: int
    incarnation: int = 0


class ConsumerTerms(Message, frozen=True):
    """First message from a consumer of a broadcast."""

    waited_for: bool  # whether producers wait for its admissions
    room: int  # if they do not, it gets no further blocks while it holds this many


class BlockRequest(Message, frozen=True):
    """Request from a producer to admit `count` more blocks."""

    count: int


class BlockGrant(Message, frozen=True):
    """Admission of one block, whose actions must come from policy version `min_version` or newer."""

    ticket: int
    min_version: int


class Post(Message, frozen=True):
    """Block that a producer has filled. Over TCP, the message carries the block's arrays."""

    block: int
    ticket: int
    sequence: int
    episodes: Episodes | None = None
    track: int = 0
    first_step: int = 0


class BlockDecline(Message, frozen=True):
    """Return of an unused admission to its consumer."""

    ticket: int


class Release(Message, frozen=True):
    """Return of a block to its producer."""

    block: int


PushMessage = Union[AttachProducer, ConsumerTerms, BlockRequest, BlockGrant, Post, BlockDecline, Release]


class AttachClient(Message, frozen=True):
    """First message from a client, with the memory of its blocks if the channel shares memory."""

    client: str
    num_blocks: int


class Request(Message, frozen=True):
    """Request for decisions on these rows of these blocks. Over TCP, the message carries the policy's input."""

    tag: int
    blocks: list[int]
    rows: list[int]
    min_version: int


class Relax(Message, frozen=True):
    """Permission for older versions to answer a request, because its blocks have lost their consumers."""

    tag: int
    min_version: int


class Reply(Message, frozen=True):
    """Decisions by policy version `version`, written to the blocks or, over TCP, attached."""

    tag: int
    version: int


RequestMessage = Union[AttachClient, Request, Relax, Reply]


class AttachSampler(Message, frozen=True):
    """First message from a trainer to a replay worker."""

    client: str
    rank: int
    size: int  # number of trainers
    incarnation: int = 0


class Published(Message, frozen=True):
    """Newest version that no failure can undo."""

    version: int


class Fill(Message, frozen=True):
    """Request to insert the blocks of an update."""

    tag: int
    update: int


class FillReply(Message, frozen=True):
    """Facts about the memory with these blocks. Carries the lags of the decisions in them, and their observations."""

    tag: int
    facts: Inserted
    paths: list[str]  # of the observations; empty if trainers do not need them


class Draw(Message, frozen=True):
    """Request for `num_steps` minibatches with `count` units each."""

    tag: int
    num_steps: Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAWN)]
    count: Annotated[int, msgspec.Meta(ge=0, le=MAX_DRAWN)]


class DrawReply(Message, frozen=True):
    """Minibatches: carries one array for each path, or none if the memory is empty."""

    tag: int
    paths: list[str]


class PriorityFeedback(Message, frozen=True):
    """Carries the priorities of the units in a DrawReply."""

    tag: int


class AttachReanalyzer(Message, frozen=True):
    """First message from a reanalyze worker to a replay worker."""

    client: str
    incarnation: int = 0


class FetchRows(Message, frozen=True):
    """Request for rows with old targets."""

    tag: int
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_DRAWN)]


class RowsReply(Message, frozen=True):
    """Rows with old targets: carries their observations, one array for each path; none if no targets are old."""

    tag: int
    paths: list[str]


class NewTargets(Message, frozen=True):
    """Carries new targets of fetched rows, one array for each name, made by this version."""

    tag: int
    version: int
    names: list[str]


SampleMessage = Union[
    AttachSampler,
    Published,
    Fill,
    FillReply,
    Draw,
    DrawReply,
    PriorityFeedback,
    AttachReanalyzer,
    FetchRows,
    RowsReply,
    NewTargets,
]
