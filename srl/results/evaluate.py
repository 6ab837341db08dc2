"""Evaluation of a run's policies over complete episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from srl.api.lanes import LONGEST_EPISODE, LanesConfig
from srl.api.policy import Policy
from srl.base.config import from_data
from srl.base.statistics import mean_of
from srl.experiments.options.roles import role_patterns
from srl.results.load import load_all
from srl.storage import ROOT, run_directory
from srl.storage.saved_policies import choose_checkpoint
from srl.workers.episode_player import EpisodePlayer, EpisodeResults

MAX_COPIES = 16


@dataclass(frozen=True)
class Evaluation:
    """Returns of complete episodes, with a 95 % interval of their mean."""

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
        """Half the width of the 95 % interval of the mean, by Student's t."""
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

    With `greedy` policies take the likeliest actions, else they sample as in training. `checkpoint` is as for
    :func:`srl.load`. An episode that does not end within `max_steps` steps is truncated, and counts with its return
    until then.
    """
    run = run_directory.find(path, ROOT)
    config = run.read_config()
    environment: LanesConfig = from_data(config["lanes"])
    source = choose_checkpoint(run, checkpoint)
    policies = load_all(run, config["policies"], source, seed)
    options = from_data(config["options"])
    played = play(environment, policies, options.agents.roles, episodes, greedy, seed, max_steps)
    return Evaluation(
        returns=tuple(value for one in played.values() for value in one.returns),
        lengths=tuple(value for one in played.values() for value in one.lengths),
        checkpoint=source,
        by_policy={name: tuple(one.returns) for name, one in played.items()},
        truncated=sum(one.truncated for one in played.values()),
    )


def play(
    environment: LanesConfig,
    policies: Mapping[str, Policy],
    roles: tuple[str, ...],
    episodes: int,
    greedy: bool,
    seed: int,
    max_steps: int,
) -> dict[str, EpisodeResults]:
    """Play `episodes` episodes in this process. Returns policy -> episodes of its agents."""
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    lanes = environment.build(min(MAX_COPIES, episodes))
    try:
        player = EpisodePlayer(lanes, policies, role_patterns(lanes.spec, roles), greedy, max_steps=max_steps)
        player.play(seed, episodes)
        return player.results()
    finally:
        lanes.close()
