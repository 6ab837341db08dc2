"""The checks that are the same for every kind of environment: values, buffers, episodes, seeds, speed."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from srl.testing.env_checks.driver import Caller, CheckStopped, Probe, Row
from srl.testing.env_checks.findings import Findings
from srl.testing.env_checks.values import arrays_of, check_flag, check_observation, check_reward, same

COMPARED_STEPS = 50
SLOW_STEPS_PER_SECOND = 50


@dataclass(frozen=True)
class Extent:
    """How far a check goes."""

    steps: int = 1000
    seconds: float = 20.0
    """No new step begins after this time."""
    timeout: float = 10.0
    """For a single call of the environment."""
    seed: int = 0


def check_rollout(make: Callable[[Caller], Probe], findings: Findings, extent: Extent) -> None:
    """`make` makes a new environment at every call."""
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
    somebody_ended = False
    begun = time.monotonic()
    while done < extent.steps and time.monotonic() - begun < extent.seconds:
        older = _Memory(row)
        row = probe.reset(None) if row.ended else probe.step()
        check_row(call.findings, probe, row)
        if probe.owns_buffers:
            older.check(call.findings)
        done, length = done + 1, length + 1
        somebody_ended |= any(reception.ended for reception in row.agents.values())
        if row.ended:
            lengths.append(length)
            length = -1  # the reset is no step
    _check_lengths(call.findings, lengths, somebody_ended, probe.limit, done)
    _check_speed(call, done)


def check_row(findings: Findings, probe: Probe, row: Row) -> None:
    for agent, reception in row.agents.items():
        who = f" of {agent}" if agent else ""
        observation_space, _ = probe.spaces_of(agent)
        if reception.observation is not None or not reception.ended:
            check_observation(findings, observation_space, reception.observation, who)
        if reception.reward is not None or reception.terminated is not None:
            check_reward(findings, reception.reward, who)
            check_flag(findings, reception.terminated, "terminated", who)
            check_flag(findings, reception.truncated, "truncated", who)


class _Memory:
    """The arrays of a row as they were, beside the arrays themselves."""

    def __init__(self, row: Row) -> None:
        values = [(agent, reception.observation) for agent, reception in row.agents.items()]
        self._parts = [(agent, part, copy.copy(part)) for agent, value in values for _, part in arrays_of(value)]

    def check(self, findings: Findings) -> None:
        for agent, part, before in self._parts:
            if not same(part, before):
                findings.error(
                    "an observation to stay as it was when it was given",
                    f"a later step or reset overwrote it{f' (of {agent})' if agent else ''}",
                    "return a copy: np.array(self.state, dtype=...)",
                )


def _check_lengths(findings: Findings, lengths: list[int], somebody_ended: bool, limit: int | None, done: int) -> None:
    if len(lengths) >= 3 and lengths[0] > 1 and all(length == 1 for length in lengths[1:]):
        findings.error(
            "a reset to begin a new episode",
            f"after the first episode ({lengths[0]} steps) all others ended at their first step",
            "set back everything in reset that makes an episode end",
        )
    if not somebody_ended and (limit is None or limit <= done):
        findings.warning(
            "episodes that end",
            f"none in {done} steps",
            "let it terminate, or wrap it in gymnasium.wrappers.TimeLimit; check more steps if episodes are long",
        )


def _check_speed(call: Caller, done: int) -> None:
    rate = done / call.seconds if call.seconds > 0 else float("inf")
    if done and rate < SLOW_STEPS_PER_SECOND:
        call.findings.warning(
            "quick steps",
            f"{rate:.1f} steps/s ({1000 / rate:.0f} ms for each)",
            "profile step: it bounds the whole experiment; or use more actors",
        )


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
    advice = "draw all random numbers from self.np_random after super().reset(seed=seed), no global generator"
    if not _same_rows(rows, repeated):
        call.findings.warning(
            "the same seed to give the same episode", "two instances with one seed differ: not deterministic", advice
        )
    elif not _same_rows(rows, again):
        call.findings.warning(
            "the same seed to give the same episode",
            "a used instance, reset with the seed, differs from a new one",
            "set back everything in reset that steps change",
        )
    elif _same_rows(rows, different) and not _same_rows([first], [second]):
        call.findings.warning(
            "different seeds to give different episodes",
            "the seed is ignored: episodes vary, but new instances with different seeds begin alike",
            advice,
        )


def _record(probe: Probe, seed: int, extent: Extent) -> list[Any]:
    probe.seed_actions(extent.seed)
    row = probe.reset(seed)
    rows = [_plain(row)]
    begun = time.monotonic()
    for _ in range(min(extent.steps, COMPARED_STEPS)):
        if time.monotonic() - begun > extent.seconds / 5:
            break
        row = probe.reset(None) if row.ended else probe.step()
        rows.append(_plain(row))
    return rows


def _plain(row: Row) -> dict[str, Any]:
    return {agent: copy.deepcopy(vars(reception)) for agent, reception in row.agents.items()}


def _same_rows(some: list[Any], others: list[Any]) -> bool:
    """Compares what both have: a slow environment may have been cut short."""
    return all(same(one, other) for one, other in zip(some, others, strict=False))
