"""Trained policies, loaded from checkpoints to act outside of training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import LanesConfig
from srl.api.policy import Policy
from srl.api.spaces import Dict, Space, array_spec
from srl.base.config import TrustCode, to_data
from srl.base.seeding import derive
from srl.base.tree import Array, Tree, TreeSpec, lane_of, leaves, map_tree
from srl.environments.conversion import (
    OBSERVATION,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    action_decoder,
    batch_axes,
    observation_encoder,
    previous_action,
)
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.saved_policies import choose_checkpoint, find_checkpoint, read_policy

PREVIOUS = {PREVIOUS_ACTION, PREVIOUS_REWARD}


class TrainedPolicy:
    """A policy that returns actions for single observations or batches of them, greedily or by sampling."""

    def __init__(
        self,
        policy: Policy,
        observation: Space,
        action: Space,
        metadata: Mapping[str, Any],
        unseen: tuple[str, ...] = (),
        mask_key: str = "",
    ) -> None:
        """`unseen` are keys of the observation that only the critic reads, `mask_key` is the key of the action mask."""
        self.policy = policy
        self.observation = observation
        self.action = action
        self.metadata = metadata  # `steps`, `version` and others, as of when it was saved

        self._encode, self._decode = observation_encoder(observation), action_decoder(action)
        self._state: Tree | None = None
        self._last: Tree | None = None  # last actions [B, ...], if observations contain them
        self._mask_key = mask_key
        known = observation.items if isinstance(observation, Dict) else {}
        self._unseen = {key: array_spec(known[key]) for key in unseen if key in known}
        self._previous = {key: array_spec(known[key]) for key in PREVIOUS if known.keys() >= PREVIOUS}

    def __repr__(self) -> str:
        return f"<TrainedPolicy of step {self.metadata['steps']:,}: {self.observation} -> {self.action}>"

    def reset(self) -> None:
        """Start an episode: clear the memory of a recurrent policy, and forget the last action."""
        self._state = self._last = None

    def act(self, observation: Any, *, greedy: bool = True, first: Any = False, reward: Any = 0.0) -> Any:
        """Return the action for one observation, or an array of actions for a batch.

        Observations and actions have the shapes, bounds and start values of the environment's spaces. Keys that only
        the critic reads (`global_keys`) may be omitted. If the environment reports an action mask in its infos, pass
        ``{"observation": observation, "action_mask": info["action_mask"]}``.

        A recurrent policy remembers the observations since `reset`. In a batch, `first` [B] marks the lanes whose
        episode begins now.

        A policy that was trained with `previous_step` also sees its last action, which this object remembers since
        `reset`, and the `reward` of it, a number or [B].
        """
        if self._previous and not (isinstance(observation, Mapping) and PREVIOUS & observation.keys()):
            observation = self._with_previous(observation, first, reward)
        if self._unseen and isinstance(observation, Mapping):
            observation = {**self._zeros_like(observation, self._unseen), **observation}
        self._check_parts(observation)
        axes = batch_axes(self.observation, observation)
        tree = self._encode(observation, *axes)
        if not axes:
            tree = map_tree(lambda value: value[None], tree)
        count = axes[0] if axes else 1
        begins = np.broadcast_to(np.asarray(first, bool), (count,))
        if self._state is not None and len(next(leaves(self._state))[1]) != count:
            raise ValueError(
                f"the memory is for a different number of lanes than these {count} observations: call reset() first"
            )
        decision = self.policy.act(tree, self._state, begins, greedy=greedy)
        self._state = decision.get("state")
        self._last = previous_action(self.action, decision["action"]) if self._previous else None
        action = self._decode(decision["action"])
        return action if axes else lane_of(action, 0)

    def _check_parts(self, observation: Any) -> None:
        """Raise ValueError for a missing key, with a hint if it is the action mask, which may be in the infos."""
        if not isinstance(self.observation, Dict) or self.observation.is_tuple:
            return
        parts = self.observation.items
        missing = [name for name in parts if not isinstance(observation, Mapping) or name not in observation]
        if not missing:
            return
        text = f"an observation must be a dictionary of {', '.join(parts)}; "
        text += f"it has no {missing[0]!r}" if isinstance(observation, Mapping) else f"found {observation!r}"
        if (key := self._mask_key) in missing:
            others = "**observation" if isinstance(observation, Mapping) else '"observation": observation'
            text += f'. The environment reports the action mask: act({{{others}, "{key}": info["{key}"]}})'
        raise ValueError(text)

    def _with_previous(self, observation: Any, first: Any, reward: Any) -> dict[str, Any]:
        """Return an observation with the previous action and reward, which are zeros where an episode begins."""
        others = [key for key in self.observation.items if key not in PREVIOUS]  # type: ignore[union-attr]
        whole = others == [OBSERVATION] and not (isinstance(observation, Mapping) and OBSERVATION in observation)
        parts: dict[str, Any] = {OBSERVATION: observation} if whole else dict(observation)
        zeros: Any = self._zeros_like(parts, self._previous)
        if self._last is None:
            return {**parts, **zeros}
        rows = np.shape(zeros[PREVIOUS_REWARD])
        begins = np.broadcast_to(np.asarray(first, bool), rows)
        last: Any = self._last if rows else lane_of(self._last, 0)

        def chosen(zero: Array, value: Array) -> Array:
            return np.where(begins.reshape((*rows, *(1,) * (zero.ndim - len(rows)))), zero, value)

        return {**parts, **map_tree(chosen, zeros, {PREVIOUS_ACTION: last, PREVIOUS_REWARD: np.float32(reward)})}

    def _zeros_like(self, observation: Mapping[str, Any], specs: Mapping[str, TreeSpec]) -> dict[str, Tree]:
        """Return zeros for keys that are not given, with as many rows as the other keys have."""
        seen = self.observation.items if isinstance(self.observation, Dict) else {}
        key = next((key for key in seen if key in observation and key not in specs), None)
        if key is None:
            return {}  # `_check_parts` says what is missing
        (_, leaf), (_, array) = next(leaves(array_spec(seen[key]))), next(leaves(observation[key]))
        rows = np.shape(array)[: np.ndim(array) - len(leaf.shape)]
        return {key: map_tree(lambda spec: spec.empty(*rows), spec) for key, spec in specs.items()}


def load(
    path: str | Path,
    *,
    policy: str = "",
    checkpoint: str | int | Path = "latest",
    seed: int = 0,
    simulations: int | None = None,
    trust_code: TrustCode = False,
) -> TrainedPolicy:
    """Load a policy from a run (its path, name, unique prefix of its name, or `latest`) or from a single checkpoint
    directory, which may be a copy. Imports nothing that only training needs.

    `policy` is the name of the policy, needed if there are several. `checkpoint` is `latest`, `best`, the number of
    steps of a kept checkpoint, or a path.

    `simulations` is the number of simulations per decision of a policy that searches, by default that of its training;
    with 0, its network decides without a search.

    A file of a run may name an algorithm or network of yours. It is loaded from a run that you started; from any other
    run, only with ``trust_code=True`` or if it is in `trust_code`, a list of your functions and classes. Otherwise this
    function raises ValueError with the names.
    """
    saved = read_policy(find_checkpoint(path, checkpoint), policy, trust_code=trust_code)
    algorithm = saved.algorithm if simulations is None else saved.algorithm.with_simulations(simulations)
    built = algorithm.build_policy(saved.observation, saved.action, derive(seed, "load", saved.name))
    built.load(saved.parameters, int(saved.metadata["version"]))
    unseen, mask_key = saved.algorithm.global_observation_keys(), saved.algorithm.action_mask_key()
    return TrainedPolicy(built, saved.observation, saved.action, saved.metadata, unseen, mask_key)


@dataclass(frozen=True)
class LoadedRun:
    """A run's environment and all its policies."""

    path: Path
    checkpoint: Path
    environment: LanesConfig
    policies: dict[str, Policy]
    roles: tuple[str, ...]


def load_run(
    path: str | Path,
    checkpoint: str | int | Path,
    seed: int,
    trust_code: TrustCode = False,
    env: str | Callable[..., Any] = "",
    env_args: Mapping[str, Any] | None = None,
    simulations: int | None = None,
) -> LoadedRun:
    """Load all policies of a run to play in its environment, in that environment with other options (`env_args`), or
    in another one (`env`).

    Raises CheckpointError if the checkpoint belongs to another run with different spaces, and ValueError if the
    policies do not fit the other environment.
    """
    from srl.experiments.options.config_file import check_named_environment
    from srl.experiments.session.compatibility import check_spaces

    run = run_directory.find(path, ROOT)
    config, source = run.load_config(trust_code), choose_checkpoint(run, checkpoint)
    policies = {
        name: load(run.path, policy=name, checkpoint=source, seed=seed, simulations=simulations, trust_code=trust_code)
        for name in config["policies"]
    }
    for name, trained in policies.items():
        try:
            spaces = {"observation": to_data(trained.observation), "action": to_data(trained.action)}
            check_spaces(name, spaces, config["policies"][name])
        except ValueError as error:
            raise checkpoints.CheckpointError(f"{source} belongs to another run: {error}") from error
    environment, roles = config["lanes"], config["options"].agents.roles
    if env or env_args:
        if not env:  # its name in config.json need not be that of `lanes`, which load_config has checked
            named, given = _own_environment(config), config["options"].run.env_args
            check_named_environment(named, given, str(run.config), run.trusted(trust_code))
        environment = _other_environment(config, env, env_args or {})
    return LoadedRun(run.path, source, environment, {name: one.policy for name, one in policies.items()}, roles)


def _own_environment(config: Mapping[str, Any]) -> str:
    """Return the name from which the run's environment was made. A function is saved by the name that any process
    finds; other adapters are chosen by the name that the user gave."""
    lanes = config["lanes"]
    while hasattr(lanes, "inner"):  # previous steps, team rewards
        lanes = lanes.inner
    title, named = str(config["environment"]), str(getattr(lanes, "name", ""))
    return named if ":" in named and not title.startswith("pettingzoo:") else title


def _other_environment(
    config: Mapping[str, Any], env: str | Callable[..., Any], env_args: Mapping[str, Any]
) -> LanesConfig:
    """Return another environment, or the run's own with other options, prepared as the run's options require."""
    from srl.experiments.graph.preparation import completed, completed_spec, environment_for
    from srl.experiments.options.roles import role_patterns
    from srl.experiments.session.compatibility import check_spaces
    from srl.workers.role import assign_teams

    options = config["options"]
    options = options.replace(env_args={**({} if env else options.run.env_args), **env_args})
    environment = environment_for(env or _own_environment(config), options)
    lanes = environment.build(1)
    lanes.close()
    patterns = role_patterns(lanes.spec, options.agents.roles)
    spec = completed_spec(lanes.spec, options)
    for policy, teams in zip(patterns.values(), assign_teams(spec, tuple(patterns)), strict=True):
        for team in (spec.teams[index] for index in teams):
            spaces = {"observation": to_data(team.observation), "action": to_data(team.action)}
            check_spaces(policy, config["policies"][policy], spaces)
    return completed(environment, lanes.spec, options)
