"""Using what was trained: a policy without the machinery of its run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import LanesConfig
from srl.api.policy import Policy
from srl.api.spaces import Space, array_spec
from srl.base.config import from_data
from srl.base.nearest import nearest
from srl.base.seeding import derive
from srl.base.tree import Tree, leaves, map_tree
from srl.runs import checkpoints, directory

ROOT = Path("runs")


class TrainedPolicy:
    """Decides for single observations or for batches of them, by the likeliest action or by drawing one."""

    def __init__(self, policy: Policy, observation: Space, action: Space, facts: Mapping[str, Any]) -> None:
        self.policy = policy
        self.observation = observation
        self.action = action
        self.facts = facts
        """What was known when it was saved: `steps`, `version`, ..."""

    def act(self, observation: Any, *, greedy: bool = True) -> Any:
        """The action for one observation, or an array of actions for a batch; in the shape of the action space."""
        spec = array_spec(self.observation)
        tree = map_tree(lambda leaf, value: np.asarray(value, leaf.dtype), spec, observation)
        (_, leaf), (_, array) = next(leaves(spec)), next(leaves(tree))
        single = array.ndim == len(leaf.shape)
        if array.shape[0 if single else 1 :] != leaf.shape:
            raise ValueError(
                f"an observation has the shape {leaf.shape}, a batch of them one axis more; found {array.shape}"
            )
        if single:
            tree = map_tree(lambda value: value[None], tree)
        count = next(leaves(tree))[1].shape[0]
        action = self.policy.act(tree, None, np.zeros(count, bool), greedy=greedy)["action"]
        return map_tree(lambda value: value[0], action) if single else action


def load(path: str | Path, *, policy: str = "", checkpoint: str | Path | None = None, seed: int = 0) -> TrainedPolicy:
    """The policy of a run (its path, name, a unique beginning of it, or `latest`), from its newest checkpoint."""
    run = directory.find(path, ROOT)
    described = run.read_config()["policies"]
    name = policy or next(iter(described))
    if name not in described:
        raise ValueError(f"{run.path} has no policy {name!r}{nearest(name, described)}")
    source = Path(checkpoint) if checkpoint is not None else checkpoints.latest(run.checkpoints)
    if source is None:
        raise FileNotFoundError(f"{run.path} has no checkpoint yet")
    arrays, facts = checkpoints.read(source)
    observation, action = from_data(described[name]["observation"]), from_data(described[name]["action"])
    built = from_data(described[name]["algorithm"]).build_policy(observation, action, derive(seed, "load", name))
    noted = facts["policies"][name]
    built.load(arrays[f"{name}/parameters"], int(noted["version"]))
    return TrainedPolicy(built, observation, action, noted)


@dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes, with a 95 % interval of their mean."""

    returns: tuple[float, ...]
    lengths: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def interval(self) -> float:
        """Half the width of the 95 % interval of the mean."""
        count = len(self.returns)
        return 1.96 * float(np.std(self.returns, ddof=1)) / math.sqrt(count) if count > 1 else math.inf


def evaluate(path: str | Path, *, episodes: int = 100, greedy: bool = True, seed: int = 0) -> Evaluation:
    """Play whole episodes with a run's policies in the environment they were trained in."""
    from srl.experiments.playing import play

    run = directory.find(path, ROOT)
    config = run.read_config()
    environment: LanesConfig = from_data(config["lanes"])
    policies = {name: load(run.path, policy=name, seed=seed).policy for name in config["policies"]}
    options = from_data(config["options"])
    return Evaluation(*play(environment, policies, options.roles, episodes, greedy, seed))


__all__ = ["Evaluation", "TrainedPolicy", "Tree", "evaluate", "load"]
