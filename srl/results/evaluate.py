"""Evaluation of a run's policies over complete episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from srl.api.lanes import LONGEST_EPISODE
from srl.base.statistics import mean_of
from srl.experiments.options.roles import role_patterns
from srl.results.load import load_run
from srl.workers.episode_player import EpisodePlayer

MAX_COPIES = 16


@dataclass(frozen=True)
class Evaluation:
    """Returns of complete episodes, with a 95 % confidence interval of their mean."""

    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    checkpoint: Path
    by_policy: Mapping[str, tuple[float, ...]]  # returns of each policy's agents, where several policies play together
    truncated: int = 0  # number of episodes that did not end within `max_steps`

    @property
    def mean(self) -> float:
        return mean_of(self.returns).value

    @property
    def interval(self) -> float:
        """Half-width of the 95 % confidence interval of the mean (Student's t)."""
        return mean_of(self.returns).interval


def evaluate(
    path: str | Path,
    *,
    episodes: int = 100,
    greedy: bool = True,
    seed: int = 0,
    checkpoint: str | int | Path = "latest",
    max_steps: int = LONGEST_EPISODE,
) -> Evaluation:
    """Play complete episodes with a run's policies in the environment they were trained in.

    With `greedy`, policies take the most likely actions; otherwise they sample as in training. `checkpoint` is as for
    :func:`srl.load`. An episode that does not end within `max_steps` steps is truncated and counts with its return so
    far.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    run = load_run(path, checkpoint, seed)
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
    )
