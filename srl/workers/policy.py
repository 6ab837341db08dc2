"""The policy worker: answers requests for decisions in batches as large as what waits."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from srl.api.algorithm import AlgorithmConfig
from srl.api.spaces import Space
from srl.api.streams import Answer, RequestBatch
from srl.api.worker import IDLE, WORKED, Context, PollResult
from srl.base.meter import Counter, Phase
from srl.base.seeding import derive
from srl.base.tree import from_leaves
from srl.streams.request import RequestStream, flat_decision, refresh


@dataclass(frozen=True)
class PolicyWorkerConfig:
    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    requests: RequestStream
    in_flight: int = 1
    """Batches under way at the same time. More than one helps where the answer takes long and computes elsewhere: a
    busy or distant accelerator. Then the policy's `act` must allow calls from several threads."""

    def build(self, context: Context) -> PolicyWorker:
        return PolicyWorker(self, context)


class PolicyWorker:
    def __init__(self, config: PolicyWorkerConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._meter = context.meter
        seed = derive(context.seed, "policy", config.policy)
        self._policy = config.algorithm.build_policy(config.observation, config.action, seed)
        self._parameters = context.parameters(config.policy)
        self._server = config.requests.server(context)
        self._pool = ThreadPoolExecutor(config.in_flight, "act") if config.in_flight > 1 else None
        self._running: deque[tuple[RequestBatch, Future[Answer]]] = deque()

    def poll(self) -> PollResult:
        worked = self._answer_finished()
        outdated = self._parameters.version > self._policy.version
        if outdated and not self._running:  # parameters never change under a batch that is under way
            refresh(self._policy, self._parameters)
            outdated = False
        if not outdated and len(self._running) < self._config.in_flight:
            batch = self._server.poll(self._policy.version)
            if batch is not None:
                worked = True
                self._begin(batch)
        if worked:
            self._meter.add(Counter.PROGRESS)
            self._meter.set(Counter.VERSION, max(0, self._policy.version))
            self._server.publish(self._meter)
        return WORKED if worked else IDLE

    def _begin(self, batch: RequestBatch) -> None:
        if self._pool is not None:
            future = self._pool.submit(self._act, batch)
            ring = self._context.bell()
            future.add_done_callback(lambda _: ring())
            self._running.append((batch, future))
            return
        self._meter.enter(Phase.INFERENCE)
        answer = self._act(batch)
        self._meter.enter(Phase.OTHER)
        self._server.reply(batch, answer)

    def _act(self, batch: RequestBatch) -> Answer:
        decision = self._policy.act(from_leaves(batch.observation), None, batch.first)
        return Answer(flat_decision(decision), self._policy.version)

    def _answer_finished(self) -> bool:
        worked = False
        for item in [item for item in self._running if item[1].done()]:
            self._running.remove(item)
            self._server.reply(item[0], item[1].result())
            worked = True
        return worked

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._server.close()
