"""The contract of lanes (:mod:`srl.api.lanes`), as a check that users can run on their own lanes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from srl.api.lanes import Lanes, TeamSpec, TimeStep
from srl.api.spaces import array_spec
from srl.base.errors import raised
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.environments.random_actions import some_actions
from srl.testing.findings import Finding, Findings

CONTRACT = "see the docstring of srl.api.lanes.TimeStep"


def check_lanes(lanes: Lanes, steps: int = 200, seed: int = 0, seconds: float = 60.0) -> list[Finding]:
    """Step the lanes with random actions, compare every time step with the contract, and close the lanes."""
    started = time.monotonic()
    findings = Findings()
    rng = np.random.default_rng(seed)
    try:
        teams = [
            _TeamChecker(findings, team, lanes.spec.num_lanes(index)) for index, team in enumerate(lanes.spec.teams)
        ]
        time_steps = lanes.reset(seed)
        opening = _acting(time_steps)
        ended = _check_time_steps(findings, lanes, teams, time_steps, None)
        for _ in range(steps):
            if findings.have_errors or time.monotonic() - started > seconds:
                break
            actions = some_actions(lanes.spec, rng, time_steps)
            before = map_tree(np.copy, _by_team(actions))
            time_steps = lanes.step(actions)
            if not _same(before, _by_team(actions)):
                findings.error("step to leave the actions unchanged", "step changed them", "change a copy")
            ended = _check_time_steps(findings, lanes, teams, time_steps, ended)
        if not findings.have_errors and not _same(_by_team(opening), _by_team(_acting(lanes.reset(seed)))):
            found = "a second reset with the same seed gave different first observations"
            fix = "derive all random numbers from the seed"
            findings.warning("the same seed to give the same episode", found, fix)
    except Exception as error:
        fix = "report the lanes as failed, or raise EnvironmentBroken"
        findings.error("reset and step to succeed", raised(error), fix)
    finally:
        _close(findings, lanes)
    return findings.all


def _check_time_steps(
    findings: Findings, lanes: Lanes, teams: list[_TeamChecker], time_steps: tuple[TimeStep, ...], ended: Array | None
) -> Array:
    """Check the time steps of all teams. Return a mask [copies] of the copies that start an episode in the next step.
    `ended` is the result of the previous call, or None at a reset.
    """
    num_copies = lanes.spec.num_copies
    if len(time_steps) != len(teams):
        findings.error(f"one time step for each of {len(teams)} teams", f"{len(time_steps)}", CONTRACT)
        return np.zeros(num_copies, np.bool_)
    acting = np.zeros(num_copies, np.bool_)
    for team, time_step in zip(teams, time_steps, strict=True):
        if not team.fits(time_step):
            return np.zeros(num_copies, np.bool_)
        team.follow(time_step, opening=ended is None)
        acting |= time_step.acting.reshape(-1, num_copies).any(axis=0)
    if (ended is None and not acting.all()) or (ended is not None and not acting[ended].all()):
        expected = "an agent to act in every copy after a reset or the end of an episode"
        findings.error(expected, f"no agent acts in copies {np.flatnonzero(~acting).tolist()}", CONTRACT)
    return ~acting


class _TeamChecker:
    """Tracks the episodes of one team's lanes."""

    def __init__(self, findings: Findings, team: TeamSpec, num_lanes: int) -> None:
        self._findings = findings
        self._team = team
        self._num_lanes = num_lanes
        self._running = np.zeros(num_lanes, np.bool_)

    def fits(self, time_step: TimeStep) -> bool:
        """Return whether shapes and dtypes match the spec."""
        spec: dict[str, Any] = dict(leaves(array_spec(self._team.observation)))
        found = dict(leaves(time_step.observation))
        expected = f"observations with the keys {sorted(spec)}"
        good = self._expect(sorted(spec) == sorted(found), expected, f"{sorted(found)}")
        for path in set(spec) & set(found):
            name = f"observation {path!r}" if path else "observation"
            good &= self._array(name, found[path], spec[path].shape, spec[path].dtype)
            good &= self._finite(name, found[path])
        good &= self._array("reward", time_step.reward, (), "float32") and self._finite("reward", time_step.reward)
        for name in ("terminated", "truncated", "acting", "first", "failed"):
            if name != "failed" or time_step.failed is not None:
                good &= self._array(name, getattr(time_step, name), (), "bool")
        for name, fact in time_step.facts.items():
            expected = f"statistic {name!r} in `facts` to have one value for each lane"
            good &= self._expect(len(fact) == self._num_lanes, expected, f"{len(fact)}")
        return good

    def follow(self, time_step: TimeStep, opening: bool) -> None:
        """Check that `acting`, `first`, `terminated` and `truncated` follow the next-step rule."""
        acting, first, reward = time_step.acting, time_step.first, time_step.reward
        ended = time_step.terminated | time_step.truncated
        failed = time_step.failed if time_step.failed is not None else np.zeros(self._num_lanes, np.bool_)
        running = np.zeros_like(self._running) if opening else self._running & ~failed
        self._never(ended & acting, "no lane to act on the last observation of an episode", "lanes that ended and act")
        self._never(ended & first, "no end together with a first observation", "lanes with `first` and an end")
        self._never(first & (reward != 0), "reward 0 with a first observation", "lanes with a reward other than 0")
        self._never(
            first & running, "`first` only after an end, a reset or a failure", "lanes with `first` in an open episode"
        )
        self._never(
            acting & ~running & ~first, "`first` where a lane starts to act", "lanes that act outside of an episode"
        )
        self._never(ended & ~running, "ends only in open episodes", "lanes that ended outside of an episode")
        self._never(failed & ended, "no end together with a failure", "lanes that failed and ended")
        idle = ~acting & ~ended
        self._never(
            idle & (reward != 0), "rewards to be delayed until a lane acts again or ends", "idle lanes with a reward"
        )
        if self._team.aligned:
            self._never(idle & running, "lanes of an aligned team to act until they end", "idle lanes")
        if time_step.failures:
            last = time_step.failures[0].strip().splitlines()
            fix = "correct the environment; the failure report has the traceback"
            self._findings.error("environments that do not fail", f"{last[0]} ... {last[-1]}", fix)
        self._running = (running | first) & ~ended

    def _array(self, name: str, array: Any, shape: tuple[int, ...], dtype: str) -> bool:
        expected = f"{name} to have dtype {dtype} and shape {(self._num_lanes, *shape)}"
        if not isinstance(array, np.ndarray):
            return self._expect(False, expected, type(array).__name__)
        good = array.shape == (self._num_lanes, *shape) and array.dtype == np.dtype(dtype)
        return self._expect(good, expected, f"dtype {array.dtype} and shape {array.shape}")

    def _finite(self, name: str, array: Any) -> bool:
        finite = not isinstance(array, np.ndarray) or array.dtype.kind != "f" or bool(np.isfinite(array).all())
        return self._expect(finite, f"{name} to be finite", "NaN or infinity", "report such lanes as failed")

    def _never(self, wrong: Array, expected: str, found: str) -> None:
        self._expect(not wrong.any(), expected, f"{found}: {np.flatnonzero(wrong).tolist()}")

    def _expect(self, good: bool, expected: str, found: str, fix: str = CONTRACT) -> bool:
        if not good:
            self._findings.error(f"{expected} (team {self._team.name})", found, fix)
        return good


def _close(findings: Findings, lanes: Lanes) -> None:
    try:
        lanes.close()
        lanes.close()
    except Exception as error:
        findings.error("close to succeed, also when called twice", f"{error!r}", "do nothing in the second call")


def _acting(time_steps: tuple[TimeStep, ...]) -> list[Tree]:
    """Return copies of the acting lanes' observations; those of other lanes are undefined."""
    return [map_tree(lambda array: array[time_step.acting], time_step.observation) for time_step in time_steps]  # noqa: B023


def _by_team(trees: Sequence[Tree]) -> Tree:
    return {str(team): tree for team, tree in enumerate(trees)}


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for (_, a), (_, b) in zip(leaves(one), leaves(other), strict=True))
