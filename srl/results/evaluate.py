"""Evaluation of a run's policies over complete episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from srl.api.lanes import LONGEST_EPISODE
from srl.base.config import TrustCode
from srl.base.statistics import mean_of, rate_of
from srl.experiments.options.roles import role_patterns
from srl.results.load import load_run
from srl.terminal.formatting import estimate, figure, plural
from srl.workers.episode_player import EpisodePlayer

MAX_COPIES = 16
SUCCESS = "is_success"
"""Fact that is 1 in an episode that reached its goal, as in Gymnasium-Robotics, and 0 in others."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of complete episodes, with a 95 % confidence interval of their mean."""

    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    checkpoint: Path
    by_policy: Mapping[str, tuple[float, ...]]  # returns of each policy's agents, where several policies play together
    truncated: int = 0  # number of episodes that did not end within `max_steps`
    episodes: int = 0  # number of episodes; each agent contributes a return per episode
    facts: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """Policy -> fact that the environment reported, such as `is_success` -> its value in each episode."""

    @property
    def mean(self) -> float:
        return mean_of(self.returns).value

    @property
    def interval(self) -> float:
        """Half-width of the 95 % confidence interval of the mean (Student's t)."""
        return mean_of(self.returns).interval

    def __str__(self) -> str:
        return "\n".join(summary(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def evaluate(
    path: str | Path,
    *,
    episodes: int = 100,
    greedy: bool = True,
    seed: int = 0,
    checkpoint: str | int | Path = "latest",
    max_steps: int = LONGEST_EPISODE,
    env: str | Callable[..., Any] = "",
    env_args: Mapping[str, Any] | None = None,
    simulations: int | None = None,
    trust_code: TrustCode = False,
) -> Evaluation:
    """Play complete episodes with a run's policies in the environment they were trained in.

    `env_args` changes options of that environment, for example to score a policy on the raw reward. `env` is another
    environment with the same spaces, as for :func:`srl.train`; it has only the options in `env_args`.

    With `greedy`, policies take the most likely actions; otherwise they sample as in training. An episode that does not
    end within `max_steps` steps is truncated and counts with its return so far. `checkpoint`, `simulations` and
    `trust_code` are as for :func:`srl.load`.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    run = load_run(path, checkpoint, seed, trust_code, env, env_args, simulations)
    lanes = run.environment.build(min(MAX_COPIES, episodes))
    try:
        roles = role_patterns(lanes.spec, run.roles)
        player = EpisodePlayer(lanes, run.policies, roles, greedy, max_steps=max_steps)
        player.play(seed, episodes)
        played = player.results()
    finally:
        lanes.close()
    return Evaluation(
        returns=tuple(value for one in played.values() for value in one.returns),
        lengths=tuple(value for one in played.values() for value in one.lengths),
        checkpoint=run.checkpoint,
        by_policy={name: tuple(one.returns) for name, one in played.items()},
        truncated=sum(one.truncated for one in played.values()),
        episodes=episodes,
        facts={
            name: {fact: tuple(values) for fact, values in sorted(one.facts.items())} for name, one in played.items()
        },
    )


def summary(evaluation: Evaluation) -> list[str]:
    """Return a line for the returns and one for each fact, per policy if there are several."""
    lines = []
    for policy, returns in evaluation.by_policy.items():
        owner = f"{policy} " if len(evaluation.by_policy) > 1 else ""
        mean, agents = mean_of(returns), len(returns) // max(1, evaluation.episodes)
        each = f", {agents} agents" if agents > 1 else ""
        value = estimate(mean.value, mean.interval)
        lines.append(
            f"{owner}return {value} (95 % interval of the mean{each}), from {figure(min(returns))} to "
            f"{figure(max(returns))}"
        )
        for fact, values in evaluation.facts.get(policy, {}).items():
            lines.append(f"{owner}{fact} {_described(fact, values)}")
    return lines


def _described(fact: str, values: Sequence[float]) -> str:
    if fact == SUCCESS:
        rate = rate_of(values)
        return (
            f"{100 * rate.value:.1f} % of {plural(rate.count, 'episode')} (95 % interval {100 * rate.low:.1f} to "
            f"{100 * rate.high:.1f} %)"
        )
    mean = mean_of(values)
    return estimate(mean.value, mean.interval)
