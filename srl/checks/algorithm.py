"""The check that strangers run on their own algorithm: `srl check-algo NAME`. It is trained on probes, small
environments whose values and best returns are known, and asked what it has learned."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import TeamSpec
from srl.api.policy import Policy
from srl.api.spaces import Dict
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.environments.adapters.masks import MASK_KEY, OBSERVATION
from srl.environments.registry import lanes_config
from srl.experiments.options.algorithms import with_absolute_paths, with_settings
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.session import RunFailed
from srl.experiments.session.train import Run, start
from srl.results.evaluate import evaluate
from srl.results.load import load
from srl.testing.probe_cases import DISCOUNT, PLACE, ProbeCase, choose_cases

TOLERANCE = 0.02
EPISODES = 256
NUM_DRAWS = 512
"""Of actions that a mask partly forbids: a third is forbidden, so that one who does not see it is found out."""
MEMORY = "gru"
NO_MEMORY = "none"
CHANCE = 0.6
"""The return of who must guess one of two, with room for luck."""
LEFT_OVER = "effect of the memory before"
STATED = f"{PLACE}:stated"
LANES, HORIZON = 8, 8
AT_MOST = {"num_minibatches": 4, "auxiliary_every": 4}
"""A batch of a probe is small: cut into more parts it costs time and teaches nothing. And a probe is short: a phase
that comes every so many updates, as PPG's, has to come a few times, with data not much older than the policy."""
MIN_UPDATES = 50
"""However many gradient steps an update makes: new data has to come in between."""


@dataclass(frozen=True)
class ProbeResult:
    """What an algorithm answered to one probe."""

    probe: str
    finds: str
    """What it would have given away."""
    verdict: Literal["pass", "fail", "not supported"]
    wanted: Mapping[str, float] = field(default_factory=dict)
    """What was asked for -> the right answer; found are those within 2 % of it."""
    found: Mapping[str, float] = field(default_factory=dict)
    bound: Literal["equal", "at most"] = "equal"
    note: str = ""
    """What is not supported, what went wrong, or with which options the probe was run."""
    seconds: float = 0.0


def check_algo(
    algo: Any = "ppo",
    *,
    probes: tuple[str, ...] = (),
    seed: int = 0,
    effort: float = 1.0,
    on_result: Callable[[ProbeResult], None] | None = None,
    **options: Any,
) -> list[ProbeResult]:
    """Train an algorithm on each probe, in this thread, and compare what it learned with what is known.

    `algo` and `options` are as for :func:`srl.train`: ``check_algo("ppo", ppo={"memory": "lstm"})``, or a config of
    your own. A probe sets the discount and the learning rate, and bounds what `AT_MOST` names, as far as the config has
    fields of these names and you leave them at their defaults. `effort` multiplies the length of training. `on_result`
    hears of each result at once.
    """
    if not effort > 0.0:
        raise ValueError(f"effort must be positive, found {effort}")
    cases = choose_cases(tuple(probes))
    chosen = with_absolute_paths(
        make_options(**{**options, "algo": algo, "seed": seed, "scheduler": "inline", "sinks": ()})
    )
    results: list[ProbeResult] = []
    with TemporaryDirectory(prefix="srl-check-") as root:
        for case in cases:
            for result in _Trial(case, chosen, effort, Path(root)).results():
                results.append(result)
                if on_result is not None:
                    on_result(result)
    return results


def has_failed(results: list[ProbeResult]) -> bool:
    """Whether a probe failed, or none could be run at all: nothing is known then."""
    return any(result.verdict == "fail" for result in results) or all(
        result.verdict == "not supported" for result in results
    )


class _Unsupported(Exception):
    """The algorithm cannot take part in this probe; the message says why."""


class _Trial:
    """One probe of one algorithm."""

    def __init__(self, case: ProbeCase, options: TrainOptions, effort: float, root: Path) -> None:
        self._case = case
        self._options = options
        self._effort = effort
        self._root = root

    def results(self) -> Iterator[ProbeResult]:
        began = time.perf_counter()
        try:
            team = self._team()
            changes, note = self._prepare(team)
            options = self._with(changes)
            yield self._examine(team, options, note, began)
            if self._case.needs == "memory" and self._case.best is not None and "memory" in changes:
                yield self._control(team, {**changes, "memory": NO_MEMORY})
        except _Unsupported as error:
            yield ProbeResult(self._case.name, self._case.finds, "not supported", note=str(error))

    def _team(self) -> TeamSpec:
        if self._case.needs == "game" and importlib.util.find_spec("pettingzoo") is None:
            raise _Unsupported("pettingzoo is not installed: pip install 'srl[pettingzoo]'")
        name, options = self._environment()
        lanes = lanes_config(name, **options).build(1)
        try:
            return lanes.spec.teams[0]
        finally:
            lanes.close()

    @property
    def _global_keys(self) -> tuple[str, ...]:
        """Parts of the observation that only the critic sees."""
        return self._options.algorithm.global_observation_keys()

    def _environment(self) -> tuple[str, dict[str, Any]]:
        """The probe's name and options; where the critic sees parts of its own, a probe that has them."""
        case, options = self._case, dict(self._case.env_args)
        if case.needs == "state" and not self._global_keys:
            raise _Unsupported("its config names no `global_keys`: its critic sees what its actor sees")
        if not self._global_keys:
            return case.environment, options
        if case.needs == "game":
            raise _Unsupported("what a critic that sees the whole game should say of it is not known")
        probe = case.environment.rpartition(":")[2]
        return STATED, {**options, "probe": probe, "keys": [*self._global_keys], "hidden": case.needs == "state"}

    def _prepare(self, team: TeamSpec) -> tuple[dict[str, Any], str]:
        """How the algorithm's config is changed for this probe, and what to say about it. What the user set stays."""
        config = self._options.algorithm
        defaults, values = _defaults(config), vars(config)
        changes: dict[str, Any] = {"learning_rate": self._case.learning_rate, "gamma": DISCOUNT}
        changes |= {name: most for name, most in AT_MOST.items() if values.get(name, 0) > most}
        note = ""
        if self._case.needs == "memory" and values.get("memory") == NO_MEMORY:
            changes["memory"] = MEMORY
            changes["memory_size"] = 16
        changes = {
            name: value for name, value in changes.items() if name in defaults and values[name] == defaults[name]
        }
        fitted = self._with(changes).algorithm
        try:
            fitted.check(team.observation, team.action)
        except ValueError as error:
            raise _Unsupported(str(error)) from error
        decision = fitted.decision_spec(team.observation, team.action)
        if self._case.needs == "memory":
            if "state" not in decision:
                raise _Unsupported("its decisions have no `state`: the policy has no memory")
            kind = fitted.memory_kind()
            note = f"memory {kind}" if kind else ""
        if self._case.values and "value" not in decision:
            raise _Unsupported("its decisions have no `value`")
        if self._case.discounted and fitted.discount() is None:
            raise _Unsupported("its config has no discount (`discount` returns None), on which the answer depends")
        if self._case.needs == "mask" and (share := _forbidden_share(_untrained(fitted, team), team)) > 0.0:
            raise _Unsupported(f"`action_mask` is not read: {share:.0%} of an untrained policy's actions are forbidden")
        return changes, note

    def _examine(self, team: TeamSpec, options: TrainOptions, note: str, began: float) -> ProbeResult:
        case = self._case
        wanted, found = self._wanted(options.algorithm), {}
        try:
            found = self._found(self._train(options), team)
        except RunFailed as error:
            note = f"training failed: {str(error).splitlines()[0]}"
        bound: Literal["equal", "at most"] = "equal" if case.at_most is None else "at most"
        right = all(name in found and _fits(found[name], number, bound) for name, number in wanted.items())
        seconds = time.perf_counter() - began
        return ProbeResult(
            case.name, case.finds, "pass" if right else "fail", wanted, found, bound, note, round(seconds, 2)
        )

    def _control(self, team: TeamSpec, changes: Mapping[str, Any]) -> ProbeResult:
        """Without a memory the probe must not be solved: otherwise it finds out nothing."""
        began = time.perf_counter()
        note, found = "memory none", {}
        try:
            found = self._found(self._train(self._with(changes)), team)
        except RunFailed as error:
            note = f"{note}, training failed: {str(error).splitlines()[0]}"
        wanted = {"return": CHANCE}
        right = "return" in found and found["return"] <= CHANCE
        return ProbeResult(
            f"{self._case.name}, control",
            "a probe that can be solved without a memory",
            "pass" if right else "fail",
            wanted,
            {name: value for name, value in found.items() if name == "return"},
            "at most",
            note,
            round(time.perf_counter() - began, 2),
        )

    def _wanted(self, config: AlgorithmConfig) -> dict[str, float]:
        case, own = self._case, config.discount()
        discount = DISCOUNT if own is None else own
        wanted = {seen.title: seen.value(discount) for seen in case.values}
        if case.best is not None:
            wanted["return"] = case.best
        if case.at_most is not None:
            wanted |= {"return": case.at_most, **({LEFT_OVER: 0.0} if case.needs == "memory" else {})}
        return wanted

    def _found(self, run: Run, team: TeamSpec) -> dict[str, float]:
        case = self._case
        policy = load(run.path).policy
        found: dict[str, float] = {}
        if case.values:
            seen_first = np.array([seen.observation for seen in case.values], np.float32)
            shown = _shown(team, seen_first, hidden=case.needs == "state")
            value = np.asarray(policy.act(shown, None, np.ones(len(seen_first), np.bool_))["value"])
            found = {seen.title: float(number) for seen, number in zip(case.values, value, strict=True)}
        if case.best is not None or case.at_most is not None:
            found["return"] = evaluate(run.path, episodes=EPISODES, seed=1).mean
        if case.at_most is not None and case.needs == "memory":
            found[LEFT_OVER] = _effect_of_memory(policy, team)
        if case.needs == "mask" and (share := _forbidden_share(policy, team)) > 0.0:
            found["return"] = float("nan")
            found["forbidden"] = share
        return found

    def _train(self, options: TrainOptions) -> Run:
        return start(self._environment()[0], options, None, self._root, None)

    def _with(self, changes: Mapping[str, Any]) -> TrainOptions:
        """The options of a training on this probe."""
        options = self._options
        config = with_settings(options.algorithm, changes, options.algo)
        cost = config.update_cost()
        per_batch = cost.epochs * cost.minibatches
        updates = max(1, round(max(MIN_UPDATES, self._case.gradient_steps / per_batch) * self._effort))
        return options.replace(
            algorithm=config,
            env_args=self._environment()[1],
            steps=updates * LANES * HORIZON,
            lanes=LANES,
            horizon=HORIZON,
            checkpoint_seconds=3600.0,
        )


def _fits(found: float, wanted: float, bound: str) -> bool:
    if bound == "at most":
        return found <= wanted + 1e-4
    return abs(found - wanted) <= TOLERANCE * abs(wanted)


def _defaults(config: Any) -> dict[str, Any]:
    return {each.name: each.default for each in fields(config) if each.init}


def _untrained(config: AlgorithmConfig, team: TeamSpec) -> Policy:
    policy = config.build_policy(team.observation, team.action, 0)
    policy.load(config.build_trainer(team.observation, team.action, 0).parameters(), 0)
    return policy


def _forbidden_share(policy: Policy, team: TeamSpec) -> float:
    """How many of the actions drawn are forbidden by the mask that :class:`Masked` shows."""
    mask: Array = np.array([[1, 1, 0]] * NUM_DRAWS, np.int8)
    observation = _shown(team, np.ones((NUM_DRAWS, 1), np.float32), mask)
    action = np.asarray(policy.act(observation, None, np.ones(NUM_DRAWS, np.bool_))["action"])
    return float((mask[np.arange(NUM_DRAWS), action] == 0).mean())


def _shown(team: TeamSpec, seen: Array, mask: Array | None = None, *, hidden: bool = False) -> Tree:
    """What an agent is shown that sees `seen` [B, n], in the parts that the probe has (see `probe_environments`)."""
    if not isinstance(team.observation, Dict):
        return seen
    own = {OBSERVATION: np.ones_like(seen) if hidden else seen} | ({} if mask is None else {MASK_KEY: mask})
    return {name: own.get(name, seen) for name in team.observation.items}


def _effect_of_memory(policy: Policy, team: TeamSpec) -> float:
    """How far a memory that is left from the episode before changes the one after an episode's first decision."""
    observation, first = _shown(team, np.zeros((1, 1), np.float32)), np.ones(1, np.bool_)
    fresh: Any = policy.act(observation, None, first, greedy=True)["state"]
    stale = map_tree(lambda array: np.ones_like(array), fresh)
    kept: Any = policy.act(observation, stale, first, greedy=True)["state"]
    changed = map_tree(lambda one, other: np.abs(one - other), fresh, kept)
    return max(float(array.max()) for _, array in leaves(changed))
