"""Your own workers and stream: scorers play greedy episodes during training and send the scores to a collector, and a
watcher sees every sample that the trainers learn from.

A graph is data. The function `with_scores` takes the standard graph and adds three worker groups. They find each other
through the streams that are fields of their configs.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

import srl
from srl.api.algorithm import AlgorithmConfig
from srl.api.control import MetricsReport, Notice
from srl.api.experiment import Experiment, WorkerGroup
from srl.api.lanes import LanesConfig
from srl.api.spaces import Space
from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.streams.push import PushStream


class Score(Message, frozen=True):
    """The message: small, typed and plain. The decoder refuses anything else."""

    version: int
    value: float


@dataclass(frozen=True)
class ScoreStream:
    """An edge from many scorers to one collector. Both ends are made from this description."""

    name: str

    def sender(self, context: Context) -> ScoreSender:
        return ScoreSender(self, context)

    def receiver(self, context: Context) -> ScoreReceiver:
        return ScoreReceiver(self, context)


class ScoreSender:
    def __init__(self, stream: ScoreStream, context: Context) -> None:
        self._prefix = f"scores/{stream.name}/"
        self._context = context
        self._channel: Channel | None = None

    def send(self, score: Score) -> None:
        """Send a score, or drop it while there is no collector: a score is not worth waiting for."""
        try:
            if self._channel is None:
                for address in self._context.names.lookup(self._prefix).values():
                    self._channel = self._context.connect(address, Score)
            if self._channel is not None:
                self._channel.send(score)
        except ChannelClosed:
            self._channel = None  # the collector died; its replacement registers under the same name

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


class ScoreReceiver:
    def __init__(self, stream: ScoreStream, context: Context) -> None:
        self._context = context
        self._listener = context.listen(f"scores/{stream.name}/{context.worker_id.name}", Score)
        self._channels: list[Channel] = []
        context.wake_on(self._listener)  # an idle worker sleeps until something arrives here

    def receive(self) -> list[Score]:
        """Return all scores that have arrived; never wait."""
        while (channel := self._listener.accept()) is not None:
            self._context.wake_on(channel)
            self._channels.append(channel)
        scores: list[Score] = []
        for channel in list(self._channels):
            try:
                while (received := channel.receive()) is not None:
                    assert isinstance(received[0], Score)
                    scores.append(received[0])
            except ChannelClosed:
                channel.close()
                self._channels.remove(channel)
        return scores

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._listener.close()


@dataclass(frozen=True)
class ScorerConfig(WorkerConfig):
    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    environment: LanesConfig
    scores: ScoreStream
    every: int = 10
    """Number of versions between two scores."""

    def build(self, context: Context) -> Scorer:
        return Scorer(self, context)


class Scorer:
    """Plays one greedy episode with every tenth version of the policy (`every`)."""

    def __init__(self, config: ScorerConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._policy = config.algorithm.build_policy(config.observation, config.action, context.seed)
        self._parameters = context.parameters(config.policy)
        self._lanes = config.environment.build(num_copies=1)
        self._scores = config.scores.sender(context)
        self._time_step = self._lanes.reset(context.seed)[0]
        self._next = 0  # the version to score next
        self._playing = False
        self._return = 0.0

    def poll(self) -> PollResult:
        """Step the environment once: a poll is a small piece of work, and the worker can stop between two of them."""
        if not self._playing:
            newest = self._parameters.pull(newer_than=self._next - 1)
            if newest is None:
                return IDLE
            version, parameters = newest
            self._policy.load(parameters, version)
            self._next = version + self._config.every
            self._playing = True
        time_step = self._time_step
        decision = self._policy.act(time_step.observation, None, time_step.first, greedy=True)
        self._time_step = time_step = self._lanes.step((decision["action"],))[0]
        self._return += float(time_step.reward[0])
        if time_step.terminated[0] or time_step.truncated[0]:
            self._scores.send(Score(self._policy.version, self._return))
            self._playing, self._return = False, 0.0
        return WORKED

    def close(self) -> None:
        self._lanes.close()
        self._scores.close()


@dataclass(frozen=True)
class CollectorConfig(WorkerConfig):
    policy: str
    scores: ScoreStream

    def build(self, context: Context) -> Collector:
        return Collector(self, context)


class Collector:
    """Notes every score with its version in the parameter service, and reports the mean and the best."""

    def __init__(self, config: CollectorConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._parameters = context.parameters(config.policy)
        self._scores = config.scores.receiver(context)
        self._recent: list[float] = []
        known = [facts["greedy_return"] for facts in self._parameters.notes().values() if "greedy_return" in facts]
        self._best = max(known, default=-np.inf)  # a replacement finds the notes of its predecessor

    def poll(self) -> PollResult:
        scores = self._scores.receive()
        for score in scores:
            self._parameters.note(score.version, {"greedy_return": score.value})
            self._recent = [*self._recent[-9:], score.value]
            if score.value > self._best:
                self._best = score.value
                self._context.report(Notice(f"version {score.version} scored {score.value:.0f}, the best so far"))
        if scores:  # shown in the live view, metrics.jsonl and TensorBoard
            figures = {"greedy_return": float(np.mean(self._recent)), "best_greedy_return": float(self._best)}
            self._context.report(MetricsReport(self._config.policy, figures))
        return WORKED if scores else IDLE

    def close(self) -> None:
        self._scores.close()


@dataclass(frozen=True)
class WatcherConfig(WorkerConfig):
    policy: str
    samples: PushStream

    def build(self, context: Context) -> Watcher:
        return Watcher(self, context)


class Watcher:
    """Sees the blocks that the trainers get, and reports the share of the most common action in them."""

    def __init__(self, config: WatcherConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._samples = config.samples.consumer(context)

    def poll(self) -> PollResult:
        self._samples.poll()
        blocks = self._samples.take(update=0)  # the number matters only if `max_lag` bounds the age
        if blocks is None:
            return IDLE
        arrays = blocks[0].block.arrays  # [T+1, L, ...]; the last row only bootstraps
        actions = arrays["decision/action"][:-1][arrays["acting"][:-1]]
        share = float(np.bincount(actions).max() / len(actions))
        self._samples.release(blocks)  # the memory belongs to the actor, which fills it again
        self._context.report(MetricsReport(self._config.policy, {"most_common_action_share": share}))
        return WORKED

    def close(self) -> None:
        self._samples.close()


def with_scores(experiment: Experiment) -> Experiment:
    """Add three groups to the standard graph, with the environment, spaces and algorithm of the actors."""
    actors = next(group.config for group in experiment.groups if group.name == "actors")
    role = actors.roles[0]
    samples = replace(role.samples, route="broadcast")
    experiment = srl.rewired(experiment, role.samples, samples)  # at both ends
    tap = samples.tap(full="drop_oldest")  # a slow watcher misses blocks; no worker waits for it
    scores = ScoreStream(role.policy)
    scorer = ScorerConfig(role.policy, role.algorithm, role.observation, role.action, actors.environment, scores)
    return replace(
        experiment,
        groups=(
            *experiment.groups,
            WorkerGroup("collector", CollectorConfig(role.policy, scores), count=1, fixed_because="one counts all"),
            WorkerGroup("scorers", scorer, count=1),  # `srl scale RUN scorers=2` works while it runs
            WorkerGroup("watchers", WatcherConfig(role.policy, tap), count=1),
        ),
    )


if __name__ == "__main__":  # worker processes import this file to find the classes above
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()
    # The same from a command line: srl train CartPole-v1 --graph examples/own_worker.py:with_scores
    run = srl.train("CartPole-v1", graph=with_scores, steps=arguments.steps, root=arguments.root, verbose=True)
    print({name: value for name, value in run.status.metrics.items() if name.endswith("greedy_return")})
