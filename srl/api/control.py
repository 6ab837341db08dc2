"""Messages between workers and the controller, or their host. Samples and parameters use streams instead."""

from __future__ import annotations

from typing import TypeAlias, Union

from srl.api.block import Episodes
from srl.api.transport import EndpointText, Message

OptionValue: TypeAlias = bool | int | float | str


class Ready(Message, frozen=True):
    """Worker: built and polling."""


class Register(Message, frozen=True):
    """Worker: address of one of its endpoints."""

    name: EndpointText
    address: EndpointText


class EpisodeReport(Message, frozen=True):
    """Actor: episodes of a policy that does not learn. Trainer of rank 1 or higher: the episodes and lags of its share
    of an update, sent before it takes part in the update, so that they are known whenever the update is."""

    policy: str
    episodes: dict[str, Episodes]  # by actor
    update: int = 0  # 0: no update learns from them
    rank: int = 0
    incarnation: int = 0
    lag_sum: int = 0
    lag_count: int = 0
    lag_max: int = 0


class Evaluated(Message, frozen=True):
    """Evaluator: complete episodes that one version of a policy played."""

    policy: str
    version: int
    returns: list[float]
    lengths: list[float]
    truncated: int = 0  # episodes that did not end within the evaluator's step limit
    facts: dict[str, float] = {}  # means of the environment's statistics


class MetricsReport(Message, frozen=True):
    """Any worker: metrics to show and log. A trainer's own are in its UpdateRecord."""

    policy: str  # a prefix of the names in a run with several policies
    metrics: dict[str, float]


class JournalEntry(Message, frozen=True):
    """Samples and result of one rank's share of an update, for `--journal`."""

    policy: str
    rank: int
    update: int
    parent: str  # digest of the parameters before the update
    digest: str  # digest of the parameters after the update
    samples: list[str]  # `PostedBlock.label` of its blocks; each block is used once
    lag: int  # highest lag of its samples, in versions


class UpdateRecord(Message, frozen=True):
    """Trainer: one committed update. Rank 0 reports every update; others only with `--journal`."""

    policy: str
    update: int
    steps: int  # decisions that the policy's trainers have learned from, after this update
    time: float  # seconds since 1970
    metrics: dict[str, float] = {}
    episodes: dict[str, Episodes] = {}  # actor -> episodes that ended in the samples
    lag_sum: int = 0  # of the samples, in versions
    lag_count: int = 0
    lag_max: int = 0
    rank: int = 0
    ranks: int = 1  # number of trainers that made the update
    incarnation: int = 0  # of these trainers
    journal: JournalEntry | None = None


class Notice(Message, frozen=True):
    """Worker: an event to show among the run's messages."""

    text: str
    event: str = "message"  # kind of the event in system.jsonl


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


class ChangeOption(Message, frozen=True):
    """Controller: a new value of an option that may change during the run."""

    name: str  # an option of the algorithm, or `env.NAME` for an attribute of the environments
    value: OptionValue
    number: int  # number of the change in this run; data-parallel trainers apply a change once all have received it
    strict: bool = False  # whether the run fails, instead of continuing, if the environments have no such attribute


class Evaluate(Message, frozen=True):
    """Controller: evaluate the newest version as soon as possible."""


class Published(Message, frozen=True):
    """Host: newer parameters arrived from another host. Wakes workers that wait for them."""


FromWorker = Union[Ready, Register, EpisodeReport, Evaluated, MetricsReport, UpdateRecord, Notice, Failure, Done]
ToWorker = Union[Names, Stop, Published, InjectFault, ChangeOption, Evaluate]
Instruction: TypeAlias = ChangeOption | Evaluate
"""Messages of the controller that a worker itself handles."""
