"""A lane group: lanes that step together, and the turn-taking between environment, recording and inference."""

from __future__ import annotations

from enum import Enum

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
        self._alone = teams == [[0]]  # one role, one team: nothing to sort apart

    def start(self) -> None:
        """Build the environment, or build it again, and write its first rows."""
        self.close()
        self._undecided.clear()
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
        if self._alone:
            self.recorders[0].arrive(arrivals)
        else:
            for recorder, members in zip(self.recorders, self._teams, strict=True):
                recorder.arrive([arrivals[team] for team in members])
        for arrival in arrivals:
            if arrival.failures:
                self._meter.add(Counter.LANE_FAILURES, len(arrival.failures))
                self.reports.extend(arrival.failures)
        self._turn = Turn.ARRIVED

    @property
    def waiting(self) -> bool:
        """Decisions are under way."""
        return self._turn is Turn.ASKED

    def advance(self) -> bool:
        """Go as far as possible without new decisions; True if anything was done."""
        if self._turn is Turn.ASKED:
            return False
        for recorder in self.recorders:
            if not recorder.prepare():
                return False
        self._turn = Turn.ASKED
        for role, recorder in enumerate(self.recorders):
            cells = recorder.cells()
            if cells and not self._clients[role].post(self.tag, cells, recorder.min_version()):
                self._undecided.add(role)
        if not self._undecided:
            self._act()
        return True

    def decided(self, role: int) -> None:
        """The decisions of one role are here; with the last of them the lanes step."""
        self._undecided.discard(role)
        if not self._undecided:
            self._act()

    def _act(self) -> None:
        ready = True
        for recorder in self.recorders:
            ready &= recorder.decided()
        if not ready:
            self._turn = Turn.ARRIVED  # a block was completed: its last row becomes the first of the next
            return
        actions = self.recorders[0].actions() if self._alone else self._sorted_actions()
        assert self.lanes is not None
        self._meter.enter(Phase.ENV)
        arrivals = self.lanes.step(actions)
        self._meter.enter(Phase.OTHER)
        self._arrive(arrivals)

    def _sorted_actions(self) -> tuple[Tree, ...]:
        """The actions of all roles, in the order of the environment's teams."""
        actions: dict[int, Tree] = {}
        for recorder, members in zip(self.recorders, self._teams, strict=True):
            actions.update(zip(members, recorder.actions(), strict=True))
        return tuple(actions[team] for team in range(len(actions)))

    def close(self) -> None:
        if self.lanes is not None:
            self.lanes.close()
            self.lanes = None
