"""Lane groups: each connects an environment's lanes to their recorders and to inference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from srl.api.control import OptionValue
from srl.api.lanes import Lanes, LanesConfig, TimeStep
from srl.api.policy import Decision
from srl.api.streams import RequestClient
from srl.api.worker import RunBroken
from srl.base.meter import Counter, Meter, Phase
from srl.base.seeding import derive
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Array, Tree
from srl.workers.actor.aligned_recorder import AlignedRecorder
from srl.workers.actor.recorder import Recorder

ENVIRONMENT = "env."  # prefix of options that are attributes of the environments
MAX_ROWS = 32  # steps per poll if the policy runs in this process; several steps amortize the per-poll overhead
BLOCKED_POLLS = 8
"""Polls after which a group that waits for one role's block returns the blocks of later roles. Counted in polls, not in
seconds, so that inline runs are reproducible. Doubled each time, up to the maximum, because updates may take long."""
MAX_BLOCKED_POLLS = 512


class LaneGroup:
    """One slot of an actor's ring. `teams[r]` are the teams of role r, in the order of its recorder's lanes.
    `slice_seconds` bounds the duration of one `advance`, so that the worker keeps reading the controller's messages
    even if its environment is slow."""

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
        options: Mapping[str, OptionValue] | None = None,
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
        # Attributes of the environments that were set during the run: value, and whether a missing one is an error.
        self._options = {name: (value, False) for name, value in (options or {}).items()}
        for name, value in (options or {}).items():
            self._note_option(name, value)
        self.notices: list[str] = []  # for the actor to send
        self._num_builds = 0
        self._polls_blocked, self._patience = 0, BLOCKED_POLLS
        self._undecided: dict[int, int] = {}  # roles whose decisions have not arrived -> oldest version allowed
        self.lanes: Lanes | None = None
        self.reports: list[str] = []  # reports on failed environments, for the actor to send
        self._single_team = teams == [[0]]
        self._is_plain = self._single_team and recorders[0].is_plain

    def start(self) -> None:
        """Build or rebuild the environment, and write its first rows."""
        self.close()
        self._undecided.clear()
        for recorder in self.recorders:
            recorder.abandon()
        self._meter.enter(Phase.ENV)
        self.lanes = self._environment.build(self._num_copies)
        for name, (value, strict) in self._options.items():
            self._set(self.lanes, name, value, strict)
        seed = derive(self._seed, "lanes", self.tag, self._num_builds)
        self._num_builds += 1
        time_steps = self.lanes.reset(seed)
        self._meter.enter(Phase.OTHER)
        self._arrive(time_steps)

    def set_option(self, name: str, value: OptionValue, strict: bool) -> None:
        """Set an attribute of the environments, now and whenever they are rebuilt. They decide when it takes effect. If
        they have no such attribute, the run fails (`strict`), or it is reported."""
        self._options[name] = value, strict
        self._note_option(name, value)
        if self.lanes is not None:
            self._set(self.lanes, name, value, strict)

    def _note_option(self, name: str, value: OptionValue) -> None:
        for recorder in self.recorders:
            recorder.tracker.set_option(f"{ENVIRONMENT}{name}", value)

    def _set(self, lanes: Lanes, name: str, value: OptionValue, strict: bool) -> None:
        try:
            lanes.set_option(name, value)
        except AttributeError as error:
            text = f"env.{name} cannot be changed: {error}"
            if strict:
                raise RunBroken(text) from error
            self.notices.append(text)

    def _arrive(self, time_steps: tuple[TimeStep, ...]) -> None:
        if self._single_team:
            self.recorders[0].arrive(time_steps)
        else:
            for recorder, members in zip(self.recorders, self._teams, strict=True):
                recorder.arrive([time_steps[team] for team in members])
        for time_step in time_steps:
            self._count_failures(time_step)

    def _count_failures(self, time_step: TimeStep) -> None:
        if time_step.failures:
            self._meter.add(Counter.LANE_FAILURES, len(time_step.failures))
            self.reports.extend(time_step.failures)

    @property
    def waiting(self) -> bool:
        """Whether requested decisions have not arrived yet."""
        return bool(self._undecided)

    def advance(self) -> bool:
        """Continue as far as possible without waiting for decisions. Return whether anything was done."""
        if self._undecided:
            self._relax_requests()
            return False
        blocked = next((role for role, recorder in enumerate(self.recorders) if not recorder.open()), None)
        if blocked is not None:
            self._wait_for(blocked)
            return False
        self._polls_blocked = 0
        if self._is_plain and self._run_rows():
            return True
        for role, recorder in enumerate(self.recorders):
            cells = recorder.cells()
            if cells and not self._clients[role].post(self.tag, cells, oldest := recorder.min_version()):
                self._undecided[role] = oldest
        if not self._undecided:
            self._act()
        return True

    def _wait_for(self, role: int) -> None:
        """Wait for the admission of a role's next block, but not forever with blocks of later roles. Otherwise, after
        the death of a trainer, two groups could each fill a block of one role and wait for the block of the other."""
        self._polls_blocked += 1
        if self._polls_blocked > self._patience:
            self._polls_blocked, self._patience = 0, min(MAX_BLOCKED_POLLS, 2 * self._patience)
            for recorder in self.recorders[role + 1 :]:
                recorder.release()

    def _relax_requests(self) -> None:
        """Accept decisions by older versions for blocks whose consumers are gone. The version required so far may never
        arrive: a replacement trainer on another host continues from the last state that left its predecessor's host."""
        for role, asked in self._undecided.items():
            oldest = self.recorders[role].min_version()
            if oldest < asked:
                self._clients[role].relax(self.tag, oldest)
                self._undecided[role] = oldest

    def _run_rows(self) -> bool:
        """Fill rows of the open block in a tight loop, with a policy in this process, and post the block when it is
        full. Return False if there is no such policy or its parameters are too old."""
        recorder, client = self.recorders[0], self._clients[0]
        assert isinstance(recorder, AlignedRecorder)
        assert recorder.opened is not None
        assert self.lanes is not None
        policy = client.local_policy(recorder.opened.min_version)
        if policy is None:
            return False
        block, row, decided = recorder.opened.block, recorder.row, recorder.decided
        begin, end = row + decided, min(row + MAX_ROWS, recorder.horizon)
        observation, first, decision = block.observation[""], block.first, block.decision
        action, step, write = decision["action"], self.lanes.step, recorder.write
        act: Callable[[Tree, Tree | None, Array], Decision] = policy.act
        if block.position is not None:
            act = partial(policy.explore, position=block.position[0])  # constant
        enter, inference, env = self._meter.enter, Phase.INFERENCE, Phase.ENV
        now, deadline = time.monotonic, time.monotonic() + self._slice
        while True:
            if decided:
                decided = False  # the first row of a block, whose decision was made in the previous block
            else:
                enter(inference)
                for key, values in act(observation[row], None, first[row]).items():
                    decision[key][row] = values
            if row == end:
                break
            enter(env)
            (time_step,) = step((action[row],))
            write(time_step)
            row += 1
            if time_step.failures or now() > deadline:
                self._count_failures(time_step)
                end = row
        enter(Phase.OTHER)
        block.version[begin : row + 1] = policy.version
        recorder.take_decisions()
        recorder.post_full()
        return True

    def decided(self, role: int) -> None:
        """Handle the arrival of one role's decisions, and step the lanes once all roles' decisions have arrived."""
        self._undecided.pop(role, None)
        if not self._undecided:
            self._act()

    def _act(self) -> None:
        posted = False
        for recorder in self.recorders:
            recorder.take_decisions()
            posted |= recorder.post_full()
        if posted:
            self._patience = max(BLOCKED_POLLS, self._patience - 1)
            return  # the current row continues in another block, which must be opened first
        actions = self.recorders[0].actions() if self._single_team else self._actions_by_team()
        assert self.lanes is not None
        self._meter.enter(Phase.ENV)
        time_steps = self.lanes.step(actions)
        self._meter.enter(Phase.OTHER)
        self._arrive(time_steps)

    def _actions_by_team(self) -> tuple[Tree, ...]:
        """Return the actions of all roles, in the order of the environment's teams."""
        actions: dict[int, Tree] = {}
        for recorder, members in zip(self.recorders, self._teams, strict=True):
            actions.update(zip(members, recorder.actions(), strict=True))
        return tuple(actions[team] for team in range(len(actions)))

    def state(self) -> State:
        assert self.lanes is not None
        blocked = self._polls_blocked, self._patience
        fields = [self._seed, self._num_builds, *blocked, sorted(self._undecided), self.reports]
        recorders = {
            key: value
            for role, recorder in enumerate(self.recorders)
            for key, value in under(f"recorder/{role}", recorder.state()).items()
        }
        return {"fields": pack(fields), **under("lanes", self.lanes.state()), **recorders}

    def restore(self, state: State) -> None:
        own, (undecided, self.reports) = (fields := unpack(state["fields"]))[:4], fields[4:]
        self._seed, self._num_builds, self._polls_blocked, self._patience = own
        for role, recorder in enumerate(self.recorders):
            recorder.restore(part(state, f"recorder/{role}"))
        self._undecided = {role: self.recorders[role].min_version() for role in undecided}
        self.lanes = self._environment.build(self._num_copies)
        self.lanes.restore(part(state, "lanes"))

    def close(self) -> None:
        if self.lanes is not None:
            self.lanes.close()
            self.lanes = None
