"""Using what was trained: a policy without the machinery of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import LONGEST_EPISODE, LanesConfig
from srl.api.policy import Policy
from srl.api.spaces import Dict, Space, array_spec
from srl.base.config import from_data, to_data
from srl.base.seeding import derive
from srl.base.statistics import mean_of
from srl.base.tree import Tree, lane_of, leaves, map_tree
from srl.results.native import decoded, encoded
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory
from srl.storage.saved_policies import choose_checkpoint, find_checkpoint, read_policy


class TrainedPolicy:
    """Decides for single observations or for batches of them, by the likeliest action or by drawing one."""

    def __init__(
        self,
        policy: Policy,
        observation: Space,
        action: Space,
        facts: Mapping[str, Any],
        unseen: tuple[str, ...] = (),
        mask_key: str = "",
    ) -> None:
        """`unseen` are parts of the observation that only the critic saw, `mask_key` is the one that says which actions
        are allowed."""
        self.policy = policy
        self.observation = observation
        self.action = action
        self.facts = facts
        """What was known when it was saved: `steps`, `version`, ..."""

        self._state: Tree | None = None
        self._mask_key = mask_key
        known = observation.items if isinstance(observation, Dict) else {}
        self._unseen = {key: array_spec(known[key]) for key in unseen if key in known}

    def reset(self) -> None:
        """An episode begins: a policy with a memory forgets the last one. Others have nothing to forget."""
        self._state = None

    def act(self, observation: Any, *, greedy: bool = True, first: Any = False) -> Any:
        """The action for one observation, or an array of actions for a batch: both as the environment writes them, in
        the shapes, bounds and countings of its spaces.

        Parts that only the critic saw in training (`global_keys`) may be left out. Where the environment tells in its
        infos which actions are allowed, an observation is ``{"observation": observation, "action_mask":
        info["action_mask"]}``.

        A policy with a memory remembers the observations of the calls before, back to `reset`. In a batch, where
        episodes begin one by one, `first` [B] says whose begins now.
        """
        spec = array_spec(self.observation)
        if self._unseen and isinstance(observation, Mapping):
            observation = {**self._unseen_like(observation), **observation}
        self._check_parts(observation)
        tree = encoded(self.observation, observation)
        (_, leaf), (_, array) = next(leaves(spec)), next(leaves(tree))
        single = array.ndim == len(leaf.shape)
        if array.shape[0 if single else 1 :] != leaf.shape:
            raise ValueError(
                f"an observation has the shape {leaf.shape}, a batch of them one axis more; found {array.shape}"
            )
        if single:
            tree = map_tree(lambda value: value[None], tree)
        count = next(leaves(tree))[1].shape[0]
        begins = np.broadcast_to(np.asarray(first, bool), (count,))
        if self._state is not None and len(next(leaves(self._state))[1]) != count:
            raise ValueError(f"the memory is of another number of lanes than the {count} observed: call reset() first")
        decision = self.policy.act(tree, self._state, begins, greedy=greedy)
        self._state = decision.get("state")
        action = decoded(self.action, decision["action"])
        return lane_of(action, 0) if single else action

    def _check_parts(self, observation: Any) -> None:
        """The part that people forget is a mask, which the environment may have in its infos."""
        if not isinstance(self.observation, Dict) or self.observation.is_tuple:
            return
        parts = self.observation.items
        missing = [name for name in parts if not isinstance(observation, Mapping) or name not in observation]
        if not missing:
            return
        text = f"an observation is a dictionary of {', '.join(parts)}; "
        text += f"it has no {missing[0]!r}" if isinstance(observation, Mapping) else f"found {observation!r}"
        if (key := self._mask_key) in missing:
            others = "**observation" if isinstance(observation, Mapping) else '"observation": observation'
            text += f'. What actions are allowed is told by the environment: act({{{others}, "{key}": info["{key}"]}})'
        raise ValueError(text)

    def _unseen_like(self, observation: Mapping[str, Any]) -> dict[str, Tree]:
        """Zeros for the parts that only the critic sees, as many rows as there are of the others."""
        seen = self.observation.items if isinstance(self.observation, Dict) else {}
        key = next(key for key in seen if key in observation and key not in self._unseen)
        (_, leaf), (_, array) = next(leaves(array_spec(seen[key]))), next(leaves(observation[key]))
        rows = np.shape(array)[: np.ndim(array) - len(leaf.shape)]
        return {key: map_tree(lambda spec: np.zeros((*rows, *spec.shape)), spec) for key, spec in self._unseen.items()}


def load(
    path: str | Path, *, policy: str = "", checkpoint: str | int | Path = "latest", seed: int = 0
) -> TrainedPolicy:
    """The policy of a run (its path, name, a unique beginning of it, or `latest`), or of a single checkpoint (its
    directory, wherever it was copied to). Nothing of the machinery that trains is needed, or imported.

    `checkpoint` is `latest`, `best`, the number of steps of one that was kept, or its path.
    """
    saved = read_policy(find_checkpoint(path, checkpoint), policy)
    built = saved.algorithm.build_policy(saved.observation, saved.action, derive(seed, "load", saved.name))
    built.load(saved.parameters, int(saved.facts["version"]))
    return TrainedPolicy(built, saved.observation, saved.action, saved.facts, saved.global_keys, saved.mask_key)


def load_all(run: RunDirectory, described: Mapping[str, Any], checkpoint: Path, seed: int) -> dict[str, Policy]:
    """Every policy of a run, to play in the run's environment. ValueError if the checkpoint is of another one, whose
    spaces differ; `described` is what the run's config says of its policies."""
    from srl.experiments.session.compatibility import check_spaces

    found = {name: load(run.path, policy=name, checkpoint=checkpoint, seed=seed) for name in described}
    for name, trained in found.items():
        try:
            spaces = {"observation": to_data(trained.observation), "action": to_data(trained.action)}
            check_spaces(name, spaces, described[name])
        except ValueError as error:
            raise checkpoints.CheckpointError(f"{checkpoint} is of another run: {error}") from error
    return {name: trained.policy for name, trained in found.items()}


@dataclass(frozen=True)
class Evaluation:
    """Returns of whole episodes, with a 95 % interval of their mean."""

    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    checkpoint: Path
    by_policy: Mapping[str, tuple[float, ...]]
    """Returns of each policy's agents, where several play together."""
    cut: int = 0
    """How many of the episodes were cut off, because they did not end within `max_steps`."""

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
    """Play whole episodes with a run's policies in the environment they were trained in.

    `greedy` takes the likeliest actions, else they are drawn as in training. `checkpoint` as for :func:`load`.
    Episodes need not end: one of `max_steps` steps is cut off, and counts with what it earned until then.
    """
    from srl.results.play import play

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
        cut=sum(one.cut for one in played.values()),
    )
