"""The policy worker: answers all waiting requests for decisions as one batch."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import GradualDecisions, Policy
from srl.api.spaces import Space
from srl.api.streams import Answer, RequestBatch, StreamEnd
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.base.meter import Counter, Phase
from srl.base.seeding import derive
from srl.base.state import NotResumable, State, part, under
from srl.base.tree import from_leaves
from srl.streams.request import RequestStream
from srl.streams.request_client import refresh
from srl.streams.rows import decide, flat_decision, tree_of


@dataclass(frozen=True)
class PolicyWorkerConfig(WorkerConfig):
    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    requests: RequestStream
    in_flight: int = 1
    """Number of batches computed concurrently. More than one helps on an accelerator, but requires a thread-safe
    `act`."""
    gradual: bool = True
    """Whether requests join decisions that take many steps, such as searches, between the steps."""

    def ends(self) -> list[StreamEnd]:
        return [self.requests.end("target"), StreamEnd(self.policy, "parameters", "target")]

    def build(self, context: Context) -> PolicyWorker:
        return PolicyWorker(self, context)


@dataclass(frozen=True, eq=False)
class _Running:
    """A batch that is being computed."""

    batch: RequestBatch
    policy: Policy
    answer: Future[Answer]


class PolicyWorker:
    """Worker that answers requests with the newest parameters."""

    def __init__(self, config: PolicyWorkerConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._meter = context.meter
        # While batches are in flight, new parameters are loaded into the idle policy, and then the two swap roles.
        self._policies = deque(self._build(index) for index in range(1 if config.in_flight == 1 else 2))
        self._parameters = context.parameters(config.policy)
        self._server = config.requests.server(context)
        self._pool = ThreadPoolExecutor(config.in_flight, "act") if config.in_flight > 1 else None
        self._running: list[_Running] = []
        gradual = config.gradual and config.in_flight == 1
        self._gradual = self._policies[0].gradual_decisions() if gradual else None
        self._begun: dict[int, RequestBatch] = {}  # gradual decisions that are not finished

    def _build(self, index: int) -> Policy:
        config = self._config
        seed = derive(self._context.seed, "policy", config.policy, index)
        return config.algorithm.build_policy(config.observation, config.action, seed)

    def poll(self) -> PollResult:
        worked = self._answer_finished()
        self._refresh()
        policy = self._policies[0]
        batch = self._server.poll(policy.version if self._admits(policy) else None)
        if batch is not None:
            worked = True
            self._begin(batch, policy)
        if self._gradual is not None and self._begun:
            worked = True
            self._step(self._gradual, policy)
        if worked:
            self._meter.add(Counter.PROGRESS)
            self._meter.set(Counter.VERSION, max(0, policy.version))
        return WORKED if worked else IDLE

    def _admits(self, policy: Policy) -> bool:
        """Return whether the policy takes another batch. Newer parameters wait until gradual decisions have finished,
        so none begin until then."""
        if self._gradual is not None:
            return not self._begun or self._parameters.version <= policy.version
        return len(self._running) < self._config.in_flight

    def _refresh(self) -> None:
        """Load the newest parameters, but never into a policy that is computing a batch."""
        idle = self._policies[-1]
        newest = self._parameters.version
        if self._begun:
            return
        if newest > self._policies[0].version and all(running.policy is not idle for running in self._running):
            refresh(idle, self._parameters)
            self._policies.rotate(1)

    def _begin(self, batch: RequestBatch, policy: Policy) -> None:
        if self._pool is not None:
            future = self._pool.submit(_act, policy, batch)
            wake = self._context.waker()
            future.add_done_callback(lambda _: wake())
            self._running.append(_Running(batch, policy, future))
            return
        self._meter.enter(Phase.INFERENCE)
        if self._gradual is not None and batch.position is None:
            observation, state = from_leaves(batch.observation), tree_of(batch.state)
            self._begun[self._gradual.begin(observation, state, batch.first)] = batch
            self._meter.enter(Phase.OTHER)
            return
        answer = _act(policy, batch)
        self._meter.enter(Phase.OTHER)
        self._server.reply(batch, answer)

    def _step(self, decisions: GradualDecisions, policy: Policy) -> None:
        self._meter.enter(Phase.INFERENCE)
        finished = decisions.step()
        self._meter.enter(Phase.OTHER)
        for key, decision in finished:
            self._server.reply(self._begun.pop(key), Answer(flat_decision(decision), policy.version))

    def _answer_finished(self) -> bool:
        finished = [running for running in self._running if running.answer.done()]
        for running in finished:
            self._running.remove(running)
            self._server.reply(running.batch, running.answer.result())
        return bool(finished)

    def state(self) -> State:
        if self._pool is not None:
            raise NotResumable("with more than one batch in flight, decisions depend on the order of threads")
        if self._begun:
            raise NotResumable("decisions that have begun cannot be saved")
        return {**under("policy", self._policies[0].state()), **under("server", self._server.state())}

    def restore(self, state: State) -> bool:
        self._policies[0].restore(part(state, "policy"))
        return self._server.restore(part(state, "server"))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._server.close()


def _act(policy: Policy, batch: RequestBatch) -> Answer:
    version = policy.version
    return Answer(decide(policy, batch), version)
