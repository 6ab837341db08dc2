"""Faults in the code itself: each breaks an invariant that some schedule must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import srl.streams.push_producer as producer_module
from srl.schedulers.agent.connection import ControllerConnection
from srl.schedulers.agent.uploads import StateUpload
from srl.streams.admission import Admission
from srl.streams.peers import connect_peers
from srl.streams.push_consumer import Consumer
from srl.workers.actor.lane_group import LaneGroup
from srl.workers.trainer.worker import TrainerWorker
from support.simulation.schedules import Simulation, Violation


@dataclass(frozen=True)
class Mutation:
    """A replacement of a function or method, described by what the code forgets."""

    forgets: str
    owner: Any
    name: str
    replace: Callable[[Any], Any]
    """Returns the replacement, given the original."""
    symptom: str = ""
    """Part of the violation that counts; others do not."""
    beside: Mutation | None = None
    """Second mutation, without which this one has no effect."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        original = vars(self.owner)[self.name]
        setattr(self.owner, self.name, self.replace(original))
        try:
            with self.beside.applied() if self.beside is not None else nullcontext():
                yield
        finally:
            setattr(self.owner, self.name, original)

    def find(self, first: int, limit: int) -> tuple[int, str] | None:
        """Run schedules until one fails. Return their number and what was wrong, or None after `limit` schedules."""
        with self.applied():
            for number in range(limit):
                try:
                    Simulation(first + number).run()
                except Violation as violation:
                    if self.symptom in violation.what:
                        return number + 1, violation.what.strip().splitlines()[-1]
        return None


def _nothing(original: Any) -> Any:
    return lambda *_: None


def _by_name(original: Any) -> Any:
    def connect(context: Any, prefix: str, remote: bool, links: Any, *rest: Any) -> None:
        for name, link in links.items():  # as if a name always had the same address
            link.address = context.names.lookup(prefix).get(name, link.address)
        connect_peers(context, prefix, remote, links, *rest)

    return connect


def _used_twice(original: Any) -> Any:
    def take(self: Any, update: int) -> Any:
        blocks = original(self, update)
        if blocks is not None and update % 3 == 0:
            self._queue.append((blocks[0], self._taken[id(blocks[0])]))
            self._admission.queued += 1
        return blocks

    return take


def _every_other(original: Any) -> Any:
    def commit(self: Any) -> None:
        if self._version % 2 == 0:
            original(self)

    return commit


def _before_stored(original: Any) -> Any:
    def send(self: Any, at_once: bool = False) -> None:
        original(self, at_once)
        self.confirm_all()

    return send


PROMISES = Mutation(
    "that admissions must not promise versions that can be lost",
    TrainerWorker,
    "_durable_version",
    lambda _: lambda self: self._published,
)
MUTATIONS = (
    PROMISES,
    # The run stalls only without both: actors wait for a promised version, which was lost with the trainer's host.
    Mutation(
        "that blocks whose consumers are gone accept older versions",
        LaneGroup,
        "_relax_requests",
        _nothing,
        "no update within",
        PROMISES,
    ),
    Mutation("that a version must be stored before it leaves its host", StateUpload, "send", _before_stored),
    Mutation("that a name may get another address", producer_module, "connect_peers", _by_name),
    Mutation("that a block was used", Consumer, "take", _used_twice),
    Mutation("that blocks may be too old", Admission, "stale", lambda _: lambda *_: False),
    Mutation("to commit every update", TrainerWorker, "_commit", _every_other),
    Mutation(
        "that a broken connection is not a dead controller",
        ControllerConnection,
        "controller_died",
        lambda _: property(lambda self: self._channel is None),
    ),
    Mutation("that a lost consumer does not use its blocks", Consumer, "_lose", _nothing),
)
