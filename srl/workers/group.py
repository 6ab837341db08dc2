"""A lane group: lanes that step together, and the turn-taking between environment, recording and inference."""

from __future__ import annotations

from enum import Enum
from typing import Any, cast

from srl.api.lanes import Arrival, Lanes, LanesConfig
from srl.api.streams import RequestClient
from srl.base.meter import Counter, Meter, Phase
from srl.base.seeding import derive
from srl.base.tree import Tree
from srl.workers.recording import Recorder


class Turn(Enum):
    ARRIVED = "rows are written; ask for decisions"
    ASKED = "decisions are under way"


class LaneGroup:
    """One slot of an actor's ring. `teams[r]` are the teams of role r, in the order of its recorder's lanes."""

    def __init__(
        self,
        tag: int,
        environment: LanesConfig,
        num_copies: int,
        teams: list[list[int]],
        recorders: list[Recorder],
        clients: list[RequestClient],
        meter: Meter,
        seed: int,
    ) -> None:
        self.tag = tag
        self._environment = environment
        self._num_copies = num_copies
        self._teams = teams
        self.recorders = recorders
        self._clients = clients
        self._meter = meter
        self._seed = seed
        self._num_builds = 0
        self._turn = Turn.ARRIVED
        self._undecided: set[int] = set()
        self.lanes: Lanes | None = None
        self.reports: list[str] = []

    def start(self) -> None:
        """Build the environment, or build it again, and write its first rows."""
        self.close()
        for recorder in self.recorders:
            recorder.abandon()
        self._meter.enter(Phase.ENV)
        self.lanes = self._environment.build(self._num_copies)
        seed = derive(self._seed, "lanes", self.tag, self._num_builds)
        self._num_builds += 1
        arrivals = self.lanes.reset(seed)
        self._meter.enter(Phase.OTHER)
        self._arrive(arrivals)

    def _arrive(self, arrivals: tuple[Arrival, ...]) -> None:
        for recorder, members in zip(self.recorders, self._teams, strict=True):
            recorder.arrive([arrivals[team] for team in members])
        for arrival in arrivals:
            if arrival.failures:
                self._meter.add(Counter.LANE_FAILURES, len(arrival.failures))
                self.reports.extend(arrival.failures)
        self._turn = Turn.ARRIVED

    def advance(self) -> bool:
        """Go as far as possible without new decisions; True if anything was done."""
        if self._turn is Turn.ASKED:
            return False
        for recorder in self.recorders:
            if not recorder.prepare():
                return False
        self._undecided.clear()
        for role, recorder in enumerate(self.recorders):
            cells = recorder.cells()
            if cells:
                self._undecided.add(role)
                self._clients[role].post(self.tag, cells, recorder.min_version())
        self._turn = Turn.ASKED
        if not self._undecided:
            self._act()
        return True

    def decided(self, role: int) -> None:
        """The decisions of one role are here; with the last of them the lanes step."""
        self._undecided.discard(role)
        if not self._undecided:
            self._act()

    def _act(self) -> None:
        ready = [recorder.decided() for recorder in self.recorders]
        if not all(ready):
            self._turn = Turn.ARRIVED  # a block was completed: its last row becomes the first of the next
            return
        actions: list[Any] = [None] * sum(len(members) for members in self._teams)
        for recorder, members in zip(self.recorders, self._teams, strict=True):
            for team, tree in zip(members, recorder.actions(), strict=True):
                actions[team] = tree
        assert self.lanes is not None
        self._meter.enter(Phase.ENV)
        arrivals = self.lanes.step(cast("tuple[Tree, ...]", tuple(actions)))
        self._meter.enter(Phase.OTHER)
        self._arrive(arrivals)

    def close(self) -> None:
        if self.lanes is not None:
            self.lanes.close()
            self.lanes = None
