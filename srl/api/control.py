"""What workers and their controller say to each other. Data never goes this way."""

from __future__ import annotations

from typing import Union

from srl.api.transport import Message


class Ready(Message, frozen=True):
    """Worker: built, and polling."""


class Register(Message, frozen=True):
    """Worker: one of my endpoints is here."""

    name: str
    address: str


class Episodes(Message, frozen=True):
    """Actor: episodes that ended since the last report; of many, a fair sample is named."""

    count: int
    returns: list[float]
    lengths: list[float]
    role: str = ""
    facts: dict[str, float] = {}
    """What the environment told of them (`Arrival.facts`), means over the `count` episodes."""


class Evaluated(Message, frozen=True):
    """Evaluator: whole episodes that fixed versions (policy -> version) have played."""

    versions: dict[str, int]
    returns: list[float]
    lengths: list[float]
    cut: int = 0
    """How many of the episodes were cut off, because they did not end."""


class Figures(Message, frozen=True):
    """Trainer: the algorithm's own figures of the last update."""

    policy: str
    figures: dict[str, float]


class UpdateRecord(Message, frozen=True):
    """Trainer, where a journal is kept: one committed update, what it was made from and what it made."""

    policy: str
    rank: int
    update: int
    parent: str
    """Digest of the parameters before it, and after it."""
    digest: str
    samples: list[str]
    """Its blocks: producer, incarnation and number, each of which is used once."""
    lag: int
    """Versions that the oldest decision was behind."""


class Notice(Message, frozen=True):
    """Worker: something a person may want to know."""

    text: str


class Failure(Message, frozen=True):
    """Worker: I cannot go on. `fatal`: nor could a replacement, so the run must end and show `text`."""

    text: str
    fatal: bool = False


class Done(Message, frozen=True):
    """Worker: my part of the run is complete. The run is, unless another policy still has to learn."""

    reason: str
    policy: str = ""
    """Which has learned all it should; empty: the worker speaks for the whole run."""


class Names(Message, frozen=True):
    """Controller: all endpoints that live now."""

    entries: dict[str, str]


class Stop(Message, frozen=True):
    """Controller: close and leave."""


class InjectFault(Message, frozen=True):
    """Controller, for `srl chaos`: be `slow` for so long, or have every TCP connection cut (`partition`)."""

    fault: str
    seconds: float


class Published(Message, frozen=True):
    """The host: newer parameters came from another host. A worker that waits for them wakes up."""


FromWorker = Union[Ready, Register, Episodes, Evaluated, Figures, UpdateRecord, Notice, Failure, Done]
ToWorker = Union[Names, Stop, Published, InjectFault]
