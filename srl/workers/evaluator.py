"""The evaluator: plays whole episodes with fixed policy versions during training, on a small fraction of a core."""

from __future__ import annotations

import time
from dataclasses import dataclass

from srl.api.control import Evaluate, Evaluated, Instruction
from srl.api.lanes import LanesConfig
from srl.api.policy import Policy
from srl.api.streams import StreamEnd
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.base.meter import Counter, Phase
from srl.base.seeding import derive
from srl.base.statistics import mean_of
from srl.workers.episode_player import EpisodePlayer
from srl.workers.process import IDLE_SECONDS
from srl.workers.role import Role

EVALUATING, EVALUATED = "evaluating", "evaluated"
"""Tags in the parameter service: the version being evaluated, and the version of the last report."""
EVAL_RETURN, EVAL_EPISODES = "eval_return", "eval_episodes"
"""Keys of the notes on each evaluated version: its mean return and number of episodes."""
MAX_COPIES = 16
MAX_TURN = 0.25


@dataclass(frozen=True)
class EvaluatorConfig(WorkerConfig):
    environment: LanesConfig
    roles: tuple[Role, ...]  # policies of the agents; the roles' streams are not used
    every: int  # minimum number of policy versions between the starts of two evaluations
    episodes: int = 10
    share: float = 0.03
    """Fraction of one core; after each poll that did work, the evaluator pauses to stay within it. Reproducible runs,
    with all workers in one thread, ignore it."""
    greedy: bool = True
    max_steps: int | None = None  # step limit of an episode, because in some environments episodes never end

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"an evaluator's share of a core is in (0, 1], found {self.share}")

    def sizes(self) -> dict[str, float]:
        return {"eval_versions": self.every, "eval_share": self.share}

    def evaluates(self) -> bool:
        return True

    def ends(self) -> list[StreamEnd]:
        return [StreamEnd(role.policy, "parameters", "target") for role in self.roles]

    def build(self, context: Context) -> Evaluator:
        return Evaluator(self, context)


class Evaluator:
    """Worker that plays episodes in its own lanes. Its policies load parameters and choose actions, but never see
    training data or update statistics. Evaluated versions stay tagged, so that the best one is still available when its
    score is known."""

    def __init__(self, config: EvaluatorConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._stores = {role.policy: context.parameters(role.policy) for role in config.roles}
        self._policies: dict[str, Policy] = {}
        for role in config.roles:
            seed = derive(context.seed, "evaluation", role.policy)
            self._policies[role.policy] = role.algorithm.build_policy(role.observation, role.action, seed)
        self._lanes = config.environment.build(min(MAX_COPIES, config.episodes))
        patterns = {role.agents: role.policy for role in config.roles}
        limit = config.max_steps
        self._player = EpisodePlayer(self._lanes, self._policies, patterns, config.greedy, context.meter, limit)
        self._playing = False
        learning = [role.policy for role in config.roles if not role.frozen] or list(self._stores)
        # Policy -> version that starts the next evaluation. A frozen policy has no further versions to wait for.
        self._next = {policy: self._planned(policy) for policy in learning}
        self._resumed = True  # until the first version that it sees
        self._paused_until = 0.0
        self._at_once = not context.threads  # in a reproducible run nothing depends on the clock
        # Chosen so that the pause after a poll lasts about as long as an idle worker's sleep.
        rest = (1.0 - config.share) / config.share
        self._turn = min(MAX_TURN, IDLE_SECONDS / rest) if rest > 0 else MAX_TURN

    def _planned(self, policy: str) -> int:
        """Return the version that triggers the first evaluation: a replacement does not repeat its predecessor's."""
        notes = self._stores[policy].notes()
        scored = [version for version, metrics in notes.items() if EVAL_RETURN in metrics]
        return max(scored) + self._config.every if scored else 0

    def poll(self) -> PollResult:
        """Work for a few milliseconds, unless the evaluator is pausing; in a reproducible run, for a whole
        evaluation."""
        if time.monotonic() < self._paused_until or not (self._playing or self._begin()):
            return IDLE
        began, used = time.monotonic(), time.process_time()
        while not self._player.done and (self._at_once or time.monotonic() - began < self._turn):
            self._player.step()
            self._context.meter.add(Counter.PROGRESS)
        if self._player.done:
            self._report()
        used = time.process_time() - used  # CPU time of all threads of this process
        if not self._at_once:
            self._paused_until = time.monotonic() + used * (1.0 / self._config.share - 1.0)
        return WORKED

    def instruct(self, message: Instruction) -> None:
        if isinstance(message, Evaluate):
            self._next, self._resumed = dict.fromkeys(self._next, 0), False

    def _begin(self) -> bool:
        """Start evaluating the newest versions if a learning policy is due. Return whether it was."""
        if any(store.version < 0 for store in self._stores.values()):
            return False
        if self._at_once and self._resumed:  # evaluates the same versions as a run without interruption
            every, self._resumed = self._config.every, False
            for policy, planned in self._next.items():
                self._next[policy] = max(planned, -(-self._stores[policy].version // every) * every)
        if all(self._stores[policy].version < version for policy, version in self._next.items()):
            return False
        self._context.meter.enter(Phase.OTHER)
        self._next = {policy: self._stores[policy].version + self._config.every for policy in self._next}
        for name, store in self._stores.items():
            store.tag(EVALUATING)
            pulled = store.pull(EVALUATING)
            assert pulled is not None
            version, parameters = pulled
            self._policies[name].load(parameters, version)
        versions = [policy.version for policy in self._policies.values()]
        self._player.begin(derive(self._context.seed, "evaluation", *versions), self._config.episodes)
        self._playing = True
        return True

    def _report(self) -> None:
        results = self._player.results()
        for name, store in self._stores.items():
            store.tag(EVALUATED, EVALUATING)
            played, version = results[name], self._policies[name].version
            returns = played.returns
            store.note(version, {EVAL_RETURN: mean_of(returns).value, EVAL_EPISODES: float(len(returns))})
            facts = {fact: mean_of(values).value for fact, values in played.facts.items()}
            lengths = list(played.lengths)
            self._context.report(Evaluated(name, version, list(returns), lengths, played.truncated, facts))
        self._playing = False

    def close(self) -> None:
        self._lanes.close()
