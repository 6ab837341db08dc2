"""Checks for every kind of environment: values, buffers, episodes, seeds, speed."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from srl.testing.env_checks.driver import Caller, Probe, StepResult
from srl.testing.env_checks.values import check_flag, check_observation, check_reward, parts_of, same
from srl.testing.findings import CheckStopped, Findings

COMPARED_STEPS = 50
SLOW_STEPS_PER_SECOND = 50


@dataclass(frozen=True)
class Extent:
    """Limits of a check."""

    steps: int = 1000
    seconds: float = 20.0
    """Time after which no new step starts."""
    timeout: float = 10.0
    """Time limit for a single call to the environment, in seconds."""
    seed: int = 0


def check_rollout(make: Callable[[Caller], Probe], findings: Findings, extent: Extent) -> None:
    """Check environments created by `make`, which returns a new one at every call."""
    call = Caller(findings, extent.timeout)
    try:
        probe = make(call)
        probe.check_spaces()
        if not findings.have_errors:
            _check_episodes(probe, call, extent)
        probe.finish()
        if not findings.have_errors:
            _check_seeds(make, Caller(findings, extent.timeout), extent)
    except CheckStopped:
        return


def _check_episodes(probe: Probe, call: Caller, extent: Extent) -> None:
    probe.seed_actions(extent.seed)
    row = probe.reset(extent.seed)
    check_row(call.findings, probe, row)
    lengths: list[int] = []
    length = done = 0
    any_ended = False
    started = time.monotonic()
    while done < extent.steps and time.monotonic() - started < extent.seconds:
        older = _parts(row)
        copies = copy.deepcopy(older)
        row = probe.reset(None) if row.ended else probe.step()
        check_row(call.findings, probe, row)
        if probe.keeps_observations:
            _check_unchanged(call.findings, older, copies)
        done, length = done + 1, length + 1
        any_ended |= any(result.ended for result in row.agents.values())
        if row.ended:
            lengths.append(length)
            length = -1  # the reset is not a step
    _check_lengths(call.findings, lengths, any_ended, probe.limit, done)
    _check_speed(call, done)


def check_row(findings: Findings, probe: Probe, row: StepResult) -> None:
    for agent, result in row.agents.items():
        owner = f" of {agent}" if agent else ""
        observation_space, _ = probe.spaces_of(agent)
        if result.observation is not None or not result.ended:
            check_observation(findings, observation_space, result.observation, owner)
        if result.reward is not None or result.terminated is not None:
            check_reward(findings, result.reward, owner)
            check_flag(findings, result.terminated, "terminated", owner)
            check_flag(findings, result.truncated, "truncated", owner)


Parts = list[tuple[str, Any]]  # agent, array in its observation


def _parts(row: StepResult) -> Parts:
    return [(agent, part) for agent, result in row.agents.items() for _, part in parts_of(result.observation)]


def _check_unchanged(findings: Findings, returned: Parts, copies: Parts) -> None:
    for (agent, part), (_, before) in zip(returned, copies, strict=True):
        if not same(part, before):
            expected = "an observation to stay unchanged after it was returned"
            found = f"a later step or reset changed it{f' (of {agent})' if agent else ''}"
            findings.error(expected, found, "return a copy: np.array(self.state, dtype=...)")


def _check_lengths(findings: Findings, lengths: list[int], any_ended: bool, limit: int | None, done: int) -> None:
    if len(lengths) >= 3 and lengths[0] > 1 and all(length == 1 for length in lengths[1:]):
        found = f"after the first episode ({lengths[0]} steps), all others ended at their first step"
        findings.error("reset to start a new episode", found, "reset every variable that ends an episode")
    if not any_ended and (limit is None or limit <= done):
        fix = "terminate episodes, or use gymnasium.wrappers.TimeLimit; if episodes are long, check with more --steps"
        findings.warning("episodes to end", f"no end in {done} steps", fix)


def _check_speed(call: Caller, done: int) -> None:
    rate = done / call.seconds if call.seconds > 0 else float("inf")
    if done and rate < SLOW_STEPS_PER_SECOND:
        found = f"{rate:.1f} steps/s ({1000 / rate:.0f} ms per step)"
        fix = "profile step, which limits the speed of training, or use more actors"
        call.findings.warning(f"at least {SLOW_STEPS_PER_SECOND} steps/s", found, fix)


def _check_seeds(make: Callable[[Caller], Probe], call: Caller, extent: Extent) -> None:
    one, another, other_seed = make(call), make(call), make(call)
    for probe in (one, another, other_seed):
        probe.check_spaces()
    rows = _record(one, extent.seed, extent)
    repeated = _record(another, extent.seed, extent)
    different = _record(other_seed, extent.seed + 1, extent)
    again = _record(one, extent.seed, extent)
    first, second = rows[0], _plain(one.reset(None))
    for probe in (one, another, other_seed):
        probe.finish()
    fix = "draw all random numbers from self.np_random after super().reset(seed=seed), not from a global generator"
    expected = "the same seed to give the same episode"
    if not _same_rows(rows, repeated):
        call.findings.warning(expected, "two instances with the same seed differ", fix)
    elif not _same_rows(rows, again):
        found = "an instance that was used before differs from a new one after reset(seed)"
        call.findings.warning(expected, found, "reset every variable that step changes")
    elif _same_rows(rows, different) and not _same_rows([first], [second]):
        found = "the seed is ignored: new instances with different seeds start with the same episode"
        call.findings.warning("different seeds to give different episodes", found, fix)


def _record(probe: Probe, seed: int, extent: Extent) -> list[Any]:
    probe.seed_actions(extent.seed)
    row = probe.reset(seed)
    rows = [_plain(row)]
    started = time.monotonic()
    for _ in range(min(extent.steps, COMPARED_STEPS)):
        if time.monotonic() - started > extent.seconds / 5:
            break
        row = probe.reset(None) if row.ended else probe.step()
        rows.append(_plain(row))
    return rows


def _plain(row: StepResult) -> dict[str, Any]:
    return {agent: copy.deepcopy(vars(result)) for agent, result in row.agents.items()}


def _same_rows(some: list[Any], others: list[Any]) -> bool:
    """Compare the steps that both recordings contain; a recording of a slow environment may be shorter."""
    return all(same(one, other) for one, other in zip(some, others, strict=False))
