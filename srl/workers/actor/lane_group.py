"""A lane group: lanes that step together, and the turn-taking between environment, recording and inference."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from enum import Enum

from srl.api.lanes import Arrival, Lanes, LanesConfig
from srl.api.streams import RequestClient
from srl.base.meter import Counter, Meter, Phase
from srl.base.seeding import derive
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Tree
from srl.workers.actor.aligned_recorder import AlignedRecorder, Recorder

MAX_ROWS = 32
"""Steps in one poll, where decisions come at once (inline inference): they share what lies around a poll."""


class Turn(Enum):
    ARRIVED = "rows are written; ask for decisions"
    ASKED = "decisions are under way"


class LaneGroup:
    """One slot of an actor's ring. `teams[r]` are the teams of role r, in the order of its recorder's lanes.

    `slice_seconds` bounds the time of one `advance`, so that a slow environment does not make its worker deaf.
    """

    def __init__(
        self,
        tag: int,
        environment: LanesConfig,
        num_copies: int,
        teams: list[list[int]],
        recorders: list[Recorder],
        clients: Sequence[RequestClient],
        meter: Meter,
        seed: int,
        slice_seconds: float = math.inf,
    ) -> None:
        self.tag = tag
        self._environment = environment
        self._num_copies = num_copies
        self._teams = teams
        self.recorders = recorders
        self._clients = clients
        self._meter = meter
        self._seed = seed
        self._slice = slice_seconds
        self._num_builds = 0
        self._turn = Turn.ARRIVED
        self._undecided: set[int] = set()
        self.lanes: Lanes | None = None
        self.reports: list[str] = []
        self._alone = teams == [[0]]  # one role, one team: nothing to sort apart
        self._flows = self._alone and recorders[0].is_plain

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
            self._heed(arrival)
        self._turn = Turn.ARRIVED

    def _heed(self, arrival: Arrival) -> None:
        if arrival.failures:
            self._meter.add(Counter.LANE_FAILURES, len(arrival.failures))
            self.reports.extend(arrival.failures)

    @property
    def waiting(self) -> bool:
        """Decisions are under way."""
        return self._turn is Turn.ASKED

    def advance(self) -> bool:
        """Go on as far as possible without new decisions, if only for some rows; True if anything was done."""
        if self._turn is Turn.ASKED:
            return False
        for recorder in self.recorders:
            if not recorder.prepare():
                return False
        if self._flows and self._flow():
            return True
        self._turn = Turn.ASKED
        for role, recorder in enumerate(self.recorders):
            cells = recorder.cells()
            if cells and not self._clients[role].post(self.tag, cells, recorder.min_version()):
                self._undecided.add(role)
        if not self._undecided:
            self._act()
        return True

    def _flow(self) -> bool:
        """The common case in one loop: rows of one team, decided for at once. False: there is none to begin with."""
        recorder, client = self.recorders[0], self._clients[0]
        assert isinstance(recorder, AlignedRecorder)
        assert self.lanes is not None
        opened = recorder.undecided()
        policy = None if opened is None else client.local_policy(opened.min_version)
        if opened is None or policy is None:
            return False
        block, begin, end = opened.block, recorder.row, recorder.horizon
        observation, first, decision = block.observation[""], block.first, block.decision
        action, act, step, write = decision["action"], policy.act, self.lanes.step, recorder.write
        enter, inference, env = self._meter.enter, Phase.INFERENCE, Phase.ENV
        now, until = time.monotonic, time.monotonic() + self._slice
        for row in range(begin, min(end, begin + MAX_ROWS)):
            enter(inference)
            for key, values in act(observation[row], None, first[row]).items():
                decision[key][row] = values
            enter(env)
            (arrival,) = step((action[row],))
            write(arrival)
            if arrival.failures or now() > until:
                break
        block.version[begin : recorder.row] = policy.version
        enter(Phase.OTHER)
        self._heed(arrival)
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

    def state(self) -> State:
        assert self.lanes is not None
        facts = [self._seed, self._num_builds, self._turn.name, sorted(self._undecided), self.reports]
        recorders = {
            key: value
            for role, recorder in enumerate(self.recorders)
            for key, value in under(f"recorder/{role}", recorder.state()).items()
        }
        return {"facts": pack(facts), **under("lanes", self.lanes.state()), **recorders}

    def restore(self, state: State) -> None:
        self._seed, self._num_builds, turn, undecided, self.reports = unpack(state["facts"])
        self._turn, self._undecided = Turn[turn], set(undecided)
        for role, recorder in enumerate(self.recorders):
            recorder.restore(part(state, f"recorder/{role}"))
        self.lanes = self._environment.build(self._num_copies)
        self.lanes.restore(part(state, "lanes"))

    def close(self) -> None:
        if self.lanes is not None:
            self.lanes.close()
            self.lanes = None
