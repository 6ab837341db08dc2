"""The contract of lanes (:mod:`srl.api.lanes`) as a check that anyone who implements it can run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from srl.api.lanes import Arrival, Lanes, TeamSpec
from srl.api.spaces import Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.testing.env_checks.findings import Finding, Findings

READ = "read the docstring of srl.api.lanes.Arrival"


def check_lanes(lanes: Lanes, steps: int = 200, seed: int = 0, seconds: float = 60.0) -> list[Finding]:
    """Drive the lanes with random actions and compare every arrival with the contract. Closes them."""
    begun = time.monotonic()
    findings = Findings()
    rng = np.random.default_rng(seed)
    try:
        watch = [_TeamWatch(findings, team, lanes.spec.num_lanes(index)) for index, team in enumerate(lanes.spec.teams)]
        arrivals = lanes.reset(seed)
        opening = _acting(arrivals)
        over = _look(findings, lanes, watch, arrivals, None)
        for _ in range(steps):
            if findings.have_errors or time.monotonic() - begun > seconds:
                break
            actions = tuple(
                sample(rng, team.action, lanes.spec.num_lanes(index), arrival.observation)
                for index, (team, arrival) in enumerate(zip(lanes.spec.teams, arrivals, strict=True))
            )
            before = map_tree(np.copy, _by_team(actions))
            arrivals = lanes.step(actions)
            if not _same(before, _by_team(actions)):
                findings.error("actions to stay as they were", "step changed them", "copy before changing")
            over = _look(findings, lanes, watch, arrivals, over)
        if not findings.have_errors and not _same(_by_team(opening), _by_team(_acting(lanes.reset(seed)))):
            findings.warning(
                "the same seed to give the same episode",
                "other first observations after a second reset",
                "derive all randomness from the seed",
            )
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        found = f"{error!r} at {last.filename}:{last.lineno}"
        findings.error("reset and step to return", found, "only report lanes as failed, or raise EnvironmentBroken")
    finally:
        _close(findings, lanes)
    return findings.all


def sample(rng: np.random.Generator, space: Space, num_lanes: int, observation: Tree) -> Tree:
    """Random actions [L, ...]; of discrete ones those that an `action_mask` [L, n] in the observation allows."""
    if isinstance(space, Discrete):
        if isinstance(observation, dict) and "action_mask" in observation:
            mask = np.asarray(observation["action_mask"], np.float64)  # [L, n]
            actions: Array = (mask * rng.random(mask.shape)).argmax(axis=1)
            return actions.astype(np.int64)
        return rng.integers(space.n, size=num_lanes)
    if isinstance(space, MultiDiscrete):
        return rng.integers(np.asarray(space.nvec), size=(num_lanes, len(space.nvec)))
    if isinstance(space, Dict):
        return {name: sample(rng, item, num_lanes, {}) for name, item in space.items.items()}
    low, high = (np.clip(np.asarray(bound, np.float64), -1e3, 1e3).reshape(-1) for bound in (space.low, space.high))
    flat = rng.uniform(low, high, (num_lanes, int(np.prod(space.shape))))
    return flat.reshape(num_lanes, *space.shape).astype(space.dtype)


def _look(
    findings: Findings, lanes: Lanes, watch: list[_TeamWatch], arrivals: tuple[Arrival, ...], over: Array | None
) -> Array:
    """Check one round of arrivals. `over` [copies] are the copies whose episode had ended before; None at a reset."""
    num_copies = lanes.spec.num_copies
    if len(arrivals) != len(watch):
        findings.error(f"one arrival for each of {len(watch)} teams", f"{len(arrivals)}", READ)
        return np.zeros(num_copies, np.bool_)
    acting = np.zeros(num_copies, np.bool_)
    for team, arrival in zip(watch, arrivals, strict=True):
        if not team.fits(arrival):
            return np.zeros(num_copies, np.bool_)
        team.follow(arrival, opening=over is None)
        acting |= arrival.acting.reshape(-1, num_copies).any(axis=0)
    if (over is None and not acting.all()) or (over is not None and not acting[over].all()):
        findings.error(
            "somebody to act in the arrival after an episode's end or a reset",
            f"nobody acts in copies {np.flatnonzero(~acting).tolist()}",
            READ,
        )
    return ~acting


class _TeamWatch:
    """Follows the episodes of one team's lanes."""

    def __init__(self, findings: Findings, team: TeamSpec, num_lanes: int) -> None:
        self._findings = findings
        self._team = team
        self._num_lanes = num_lanes
        self._running = np.zeros(num_lanes, np.bool_)

    def fits(self, arrival: Arrival) -> bool:
        """Whether shapes and dtypes are those of the spec."""
        spec: dict[str, Any] = dict(leaves(array_spec(self._team.observation)))
        found = dict(leaves(arrival.observation))
        good = self._want(sorted(spec) == sorted(found), f"observations {sorted(spec)}", f"{sorted(found)}")
        for path in set(spec) & set(found):
            name = f"observation {path!r}" if path else "observation"
            good &= self._array(name, found[path], spec[path].shape, spec[path].dtype)
            good &= self._finite(name, found[path])
        good &= self._array("reward", arrival.reward, (), "float32") and self._finite("reward", arrival.reward)
        for name in ("terminated", "truncated", "acting", "first", "failed"):
            if name != "failed" or arrival.failed is not None:
                good &= self._array(name, getattr(arrival, name), (), "bool")
        for name, fact in arrival.facts.items():
            good &= self._want(len(fact) == self._num_lanes, f"fact {name!r} of each lane", f"{len(fact)}")
        return good

    def follow(self, arrival: Arrival, opening: bool) -> None:
        """Whether the marks tell a story that the next-step rule allows."""
        acting, first, reward = arrival.acting, arrival.first, arrival.reward
        ended = arrival.terminated | arrival.truncated
        failed = arrival.failed if arrival.failed is not None else np.zeros(self._num_lanes, np.bool_)
        running = np.zeros_like(self._running) if opening else self._running & ~failed
        self._never(ended & acting, "nobody to act on an episode's last observation", "lanes that ended and act")
        self._never(ended & first, "an opening observation to end nothing", "lanes with first and an end")
        self._never(first & (reward != 0), "reward 0 with an opening observation", "another reward")
        self._never(
            first & running, "`first` only after an end, a reset or a failure", "lanes that open an open episode"
        )
        self._never(acting & ~running & ~first, "`first` where a lane begins to act", "lanes that act in no episode")
        self._never(ended & ~running, "ends only of open episodes", "lanes that ended but were not in an episode")
        self._never(failed & ended, "no end together with a failure", "lanes that failed and ended")
        rests = ~acting & ~ended
        self._never(
            rests & (reward != 0), "rewards kept until a lane acts again or ends", "a lane that rests and earns"
        )
        if self._team.aligned:
            self._never(rests & running, "lanes of an aligned team to act until they end", "lanes that rest")
        if arrival.failures:
            last = arrival.failures[0].strip().splitlines()
            self._findings.error(
                "environments that do not break",
                f"{last[0]} ... {last[-1]}",
                "mend the environment; all is in the report",
            )
        self._running = (running | first) & ~ended

    def _array(self, name: str, array: Any, shape: tuple[int, ...], dtype: str) -> bool:
        wanted = f"{name} of dtype {dtype} and shape {(self._num_lanes, *shape)}"
        if not isinstance(array, np.ndarray):
            return self._want(False, wanted, type(array).__name__)
        good = array.shape == (self._num_lanes, *shape) and array.dtype == np.dtype(dtype)
        return self._want(good, wanted, f"dtype {array.dtype} and shape {array.shape}")

    def _finite(self, name: str, array: Any) -> bool:
        finite = not isinstance(array, np.ndarray) or array.dtype.kind != "f" or bool(np.isfinite(array).all())
        return self._want(finite, f"{name} without NaN or infinity", "some", "report such lanes as failed")

    def _never(self, wrong: Array, wanted: str, found: str) -> None:
        self._want(not wrong.any(), wanted, f"{found}: {np.flatnonzero(wrong).tolist()}")

    def _want(self, good: bool, wanted: str, found: str, advice: str = READ) -> bool:
        if not good:
            self._findings.error(f"{wanted} (team {self._team.name})", found, advice)
        return good


def _close(findings: Findings, lanes: Lanes) -> None:
    try:
        lanes.close()
        lanes.close()
    except Exception as error:
        findings.error("close to work, also twice", f"{error!r}", "forget what was closed")


def _acting(arrivals: tuple[Arrival, ...]) -> list[Tree]:
    """Copies of what is seen by those who act; what others see is left open."""
    return [map_tree(lambda array: array[arrival.acting], arrival.observation) for arrival in arrivals]  # noqa: B023


def _by_team(trees: Sequence[Tree]) -> Tree:
    return {str(team): tree for team, tree in enumerate(trees)}


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for (_, a), (_, b) in zip(leaves(one), leaves(other), strict=True))
