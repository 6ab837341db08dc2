"""Messages between workers and the controller, or their host. Samples and parameters use streams instead."""

from __future__ import annotations

from typing import Union

from srl.api.transport import Message


class Ready(Message, frozen=True):
    """Worker: built and polling."""


class Register(Message, frozen=True):
    """Worker: address of one of its endpoints."""

    name: str
    address: str


class Episodes(Message, frozen=True):
    """Actor: episodes of one policy's agents since the last report; a random sample of them if there are many."""

    count: int
    returns: list[float]
    lengths: list[float]
    policy: str = ""
    facts: dict[str, float] = {}  # means of `TimeStep.facts` over the `count` episodes


class Evaluated(Message, frozen=True):
    """Evaluator: complete episodes that one version of a policy played."""

    policy: str
    version: int
    returns: list[float]
    lengths: list[float]
    truncated: int = 0  # episodes that did not end within the evaluator's step limit


class MetricsReport(Message, frozen=True):
    """Trainer or any other worker: metrics to show and log, e.g. those of the last update."""

    policy: str  # a prefix of the names in a run with several policies
    metrics: dict[str, float]


class UpdateRecord(Message, frozen=True):
    """Trainer, with `--journal`: one committed update, its samples and its result."""

    policy: str
    rank: int
    update: int
    parent: str  # digest of the parameters before the update
    digest: str  # digest of the parameters after the update
    samples: list[str]  # `PostedBlock.label` of its blocks; each block is used once
    lag: int  # highest lag of its samples, in versions


class Notice(Message, frozen=True):
    """Worker: an event to show among the run's messages."""

    text: str


class Failure(Message, frozen=True):
    """Worker: it failed."""

    text: str
    fatal: bool = False  # a replacement would fail too, so the run ends and shows `text`


class Done(Message, frozen=True):
    """Worker: its part of the run is complete. The run ends once every learning policy is complete."""

    reason: str
    policy: str = ""  # empty: the whole run is complete


class Names(Message, frozen=True):
    """Controller: all endpoints that exist now (name -> address)."""

    entries: dict[str, str]


class Stop(Message, frozen=True):
    """Controller: close and exit."""


class InjectFault(Message, frozen=True):
    """Controller, for `srl chaos`: be `slow` for some seconds, or close all TCP connections (`partition`)."""

    fault: str
    seconds: float


class Published(Message, frozen=True):
    """Host: newer parameters arrived from another host. Wakes workers that wait for them."""


FromWorker = Union[Ready, Register, Episodes, Evaluated, MetricsReport, UpdateRecord, Notice, Failure, Done]
ToWorker = Union[Names, Stop, Published, InjectFault]
