"""The actor: steps a ring of lane groups. While one group waits for decisions, the others continue."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from srl.api.block import joined
from srl.api.control import ChangeOption, EpisodeReport, Instruction, Notice, OptionValue
from srl.api.lanes import LanesConfig, LaneSpec
from srl.api.streams import PushProducer, RequestClient, StreamEnd
from srl.api.worker import IDLE, WORKED, Context, PollResult, RunBroken, WorkerConfig
from srl.base.errors import last_line, traceback_of
from srl.base.meter import Counter
from srl.base.seeding import derive
from srl.base.state import NotResumableYet, State, part, under
from srl.streams.request_client import InlineClient
from srl.workers.actor.aligned_recorder import AlignedRecorder
from srl.workers.actor.lane_group import ENVIRONMENT, LaneGroup
from srl.workers.actor.recorder import Recorder, positions_of
from srl.workers.actor.unaligned_recorder import UnalignedRecorder
from srl.workers.actor.unrecorded import UnrecordedLanes
from srl.workers.role import Role, assign_teams

REPORT_SECONDS = 0.25
SLICE_SECONDS = 0.01


@dataclass(frozen=True)
class ActorConfig(WorkerConfig):
    environment: LanesConfig
    spec: LaneSpec  # spec of one copy of the environment
    roles: tuple[Role, ...]
    copies: int  # environment copies in each group of the ring
    ring: int = 1
    max_env_failures: int = 10  # this actor's environment failures within a minute; beyond this, the run fails
    environment_options: tuple[tuple[str, OptionValue], ...] = ()  # attributes set during the run

    def with_option(self, name: str, value: OptionValue) -> ActorConfig | None:
        if not name.startswith(ENVIRONMENT):
            return None
        attribute = name.removeprefix(ENVIRONMENT)
        if attribute.startswith("_"):
            raise ValueError(f"{name} cannot change: {attribute} is private")
        options = {**dict(self.environment_options), attribute: value}
        return replace(self, environment_options=tuple(options.items()))

    def sizes(self) -> dict[str, int]:
        return {"lanes": self.copies, "ring": self.ring}

    def ends(self) -> list[StreamEnd]:
        return [end for role in self.roles for end in role.ends()]

    def sample_bytes(self) -> int:
        """Return the size of the shared memory for samples that one actor allocates."""
        spec = replace(self.spec, num_copies=self.copies)
        teams = assign_teams(spec, tuple(role.agents for role in self.roles))
        total = 0
        for role, members in zip(self.roles, teams, strict=True):
            blocks = role.samples.room + sum(_num_blocks(role, self.ring, sum(map(spec.num_lanes, members))))
            total += blocks * role.samples.spec.nbytes
        return total

    def build(self, context: Context) -> Actor:
        return Actor(self, context)


def _num_blocks(role: Role, ring: int, num_lanes: int) -> tuple[int, int]:
    """Return the number of blocks filled at the same time, and the number of scratch blocks."""
    if role.frozen:
        return 0, ring
    return (ring, 0) if role.aligned else (ring * num_lanes, ring * num_lanes)


class Actor:
    def __init__(self, config: ActorConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._meter = context.meter
        spec = replace(config.spec, num_copies=config.copies)
        teams = assign_teams(spec, tuple(role.agents for role in config.roles))
        self._producers: list[PushProducer] = []
        self._clients: list[RequestClient] = []
        recorders: list[list[Recorder]] = [[] for _ in range(config.ring)]
        for role, members in zip(config.roles, teams, strict=True):
            counts = [spec.num_lanes(team) for team in members]
            num_open, num_scratch = _num_blocks(role, config.ring, sum(counts))
            producer = role.samples.producer(context, num_open, num_scratch)
            self._producers.append(producer)
            self._clients.append(self._client(role, producer))
            kind = AlignedRecorder if role.aligned else UnalignedRecorder
            for slot in range(config.ring):
                place = context.worker_id.index, slot, config.ring, sum(counts)
                positions = positions_of(*place) if role.samples.spec.positions else None
                recorders[slot].append(
                    UnrecordedLanes(producer, counts, self._meter)
                    if role.frozen
                    else kind(producer, counts, self._meter, slot, positions)
                )
        environment = config.environment.bind(context)
        self._groups = [
            LaneGroup(
                slot,
                environment,
                config.copies,
                teams,
                recorders[slot],
                self._clients,
                self._meter,
                context.seed,
                SLICE_SECONDS if context.threads else math.inf,  # reproducible runs must not depend on the clock
                dict(config.environment_options),
            )
            for slot in range(config.ring)
        ]
        self._failures: deque[float] = deque()
        self._noticed: dict[str, float] = {}  # failure -> time when it was reported
        self._reported = 0.0
        self._started = 0

    def instruct(self, message: Instruction) -> None:
        if isinstance(message, ChangeOption):
            for group in self._groups:
                group.set_option(message.name.removeprefix(ENVIRONMENT), message.value, message.strict)
            for text in dict.fromkeys(text for group in self._groups for text in group.notices):
                self._context.report(Notice(text))
            for group in self._groups:
                group.notices.clear()

    def _client(self, role: Role, producer: PushProducer) -> RequestClient:
        if role.inference is not None:
            return role.inference.client(self._context, producer.memory)
        seed = derive(self._context.seed, "policy", role.policy)
        policy = role.algorithm.build_policy(role.observation, role.action, seed)
        return InlineClient(policy, self._context.parameters(role.policy), producer.memory, self._meter)

    def poll(self) -> PollResult:
        if self._started < len(self._groups):
            group = self._groups[self._started]
            self._started += 1
            self._attempt(group, group.start)
            return WORKED
        worked = waiting = False
        for group in self._groups:
            worked |= self._attempt(group, group.advance)
            waiting |= group.waiting
        if waiting:
            worked |= self._collect()
        if worked:
            self._meter.add(Counter.PROGRESS)
        else:
            for producer in self._producers:
                producer.poll()
            if not waiting:
                for client in self._clients:
                    client.poll()  # otherwise, a server that is gone would keep waking the worker
        now = time.monotonic()
        if now - self._reported > REPORT_SECONDS:
            self._reported = now
            for recorder in (each for group in self._groups for each in group.recorders):
                if isinstance(recorder, AlignedRecorder):
                    recorder.count_decisions()
            self._report()
        return WORKED if worked else IDLE

    def _collect(self) -> bool:
        """Receive decisions, and step the groups whose decisions have all arrived."""
        worked = False
        for role, client in enumerate(self._clients):
            client.flush()
            for tag in client.poll():
                group = self._groups[tag]
                self._attempt(group, partial(group.decided, role))
                worked = True
        return worked

    def _attempt(self, group: LaneGroup, action: Callable[[], bool | None]) -> bool:
        """Run a step of a group. If its environment fails, rebuild it: only the unfinished rows are lost."""
        try:
            result = action()
        except RunBroken:
            raise
        except Exception as error:
            self._count_failure(traceback_of(error))
            self._meter.add(Counter.LANE_FAILURES)
            self._attempt(group, group.start)
            return True
        if group.reports:
            for report in group.reports:
                self._count_failure(report)
            group.reports.clear()
        return result is True

    def _count_failure(self, report: str) -> None:
        now = time.monotonic()
        self._failures.append(now)
        while self._failures and now - self._failures[0] > 60.0:
            self._failures.popleft()
        count = len(self._failures)
        if count > self._config.max_env_failures:
            raise RunBroken(
                f"environments failed {count} times within a minute in {self._context.worker_id.name}; the last report:"
                f"\n{report}"
            )
        last = last_line(report, "no message", limit=None)
        if now - self._noticed.get(last, -math.inf) > 60.0:  # the status counts all failures
            self._noticed[last] = now
            self._context.report(Notice(f"an environment failed and was restarted: {last}"))

    def _report(self) -> None:
        """Report the episodes of policies that do not learn. Those of the others travel with their blocks."""
        for position, role in enumerate(self._config.roles):
            if role.frozen:
                found = [group.recorders[position].tracker.drain() for group in self._groups]
                own = self._context.worker_id.name
                if episodes := joined((own, one) for one in found if one is not None):
                    self._context.report(EpisodeReport(role.policy, episodes))

    def state(self) -> State:
        """Return the state, including running episodes and partly filled blocks."""
        if self._started < len(self._groups):
            raise NotResumableYet("its environments are still being built")
        parts = {
            **{f"producer/{role}": producer.state() for role, producer in enumerate(self._producers)},
            **{f"client/{role}": client.state() for role, client in enumerate(self._clients)},
            **{f"group/{group.tag}": group.state() for group in self._groups},
        }
        return {key: value for name, state in parts.items() for key, value in under(name, state).items()}

    def restore(self, state: State) -> bool:
        ready = True
        for role, producer in enumerate(self._producers):
            ready &= producer.restore(part(state, f"producer/{role}"))
            ready &= self._clients[role].restore(part(state, f"client/{role}"))
        if ready:
            for group in self._groups:
                group.restore(part(state, f"group/{group.tag}"))
            self._started = len(self._groups)
        return ready

    def close(self) -> None:
        self._report()
        for group in self._groups:
            group.close()
        for client in self._clients:
            client.close()
        for producer in self._producers:
            producer.close()
