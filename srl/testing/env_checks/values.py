"""Checks of an environment's values: spaces, observations, rewards, episode ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.base.tree import Array
from srl.environments.spaces import from_gymnasium
from srl.testing.findings import Findings


def check_spaces(findings: Findings, observation: Any, action: Any, owner: str) -> None:
    for role, space in (("observation", observation), ("action", action)):
        if not isinstance(space, spaces.Space):
            fix = f"set self.{role}_space in __init__"
            findings.error(f"{role}_space to be a Gymnasium space", f"{space!r}{owner}", fix)
            continue
        try:
            from_gymnasium(space, role)
        except ValueError as error:
            fix = "use a supported space, or convert it in a wrapper"
            findings.error(f"a supported {role} space", f"{error}{owner}", fix)
    for path, leaf in parts_of(action):
        if isinstance(leaf, spaces.Box) and not leaf.is_bounded():
            fix = "set bounds: without them actions are neither clipped nor scaled"
            findings.warning(f"the action space{path} to have finite bounds", f"{leaf}{owner}", fix)
    for path, leaf in parts_of(observation):
        if isinstance(leaf, spaces.Box) and leaf.dtype == np.float64:
            fix = "declare and return float32, which needs no conversion at every step"
            findings.warning(f"observations{path} to have dtype float32", f"float64{owner}", fix)


def parts_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts of a native observation or space, each with its path."""
    if isinstance(value, (Mapping, tuple, spaces.Tuple)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from parts_of(item, f"{path}[{key!r}]")
    else:
        yield path, value


def check_observation(findings: Findings, space: Any, value: Any, owner: str, path: str = "") -> None:
    what = f"observation{path}"
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        items = dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        found = dict(value) if isinstance(value, Mapping) else dict(enumerate(value)) if type(value) is tuple else None
        if found is None or set(found) != set(items):
            keys = type(value).__name__ if found is None else f"keys {list(found)}"
            findings.error(f"{what} to have the keys {list(items)}", f"{keys}{owner}", "return every key of the space")
            return
        for key, item in items.items():
            check_observation(findings, item, found[key], owner, f"{path}[{key!r}]")
    elif isinstance(space, spaces.Box):
        _check_box(findings, space, value, what, owner)
    elif not space.contains(value):
        findings.error(f"{what} to be in its space {space}", f"{value!r}{owner}", "correct the value or the space")


def _check_box(findings: Findings, space: Any, value: Any, what: str, owner: str) -> None:
    if not isinstance(value, (np.ndarray, np.generic)):
        fix = "return np.array(..., dtype=space.dtype)"
        findings.error(f"{what} to be a numpy array", f"{type(value).__name__}{owner}", fix)
        return
    if value.shape != space.shape:
        fix = "correct the shape or the space"
        findings.error(f"{what} to have shape {space.shape}", f"shape {value.shape}{owner}", fix)
        return
    if value.dtype != space.dtype:
        fix = "return .astype(space.dtype)"
        findings.error(f"{what} to have dtype {space.dtype}", f"dtype {value.dtype}{owner}", fix)
    if value.dtype.kind not in "fiub":
        return
    if not np.isfinite(value).all():
        findings.error(f"{what} to be finite", f"{_show(value)}{owner}", "look for a division by zero or an overflow")
    elif (value < space.low).any() or (value > space.high).any():
        found = f"{_show(value)}{owner}, bounds {space.low.min():g} to {space.high.max():g}"
        fix = "widen the bounds of the space, or clip the observation"
        findings.error(f"{what} to be within the bounds of its space", found, fix)


def check_reward(findings: Findings, reward: Any, owner: str) -> None:
    if not isinstance(reward, (int, float, np.integer, np.floating)):
        found = f"{type(reward).__name__}: {_show(reward)}{owner}"
        several = isinstance(reward, (list, tuple, np.ndarray)) and len(np.atleast_1d(reward)) > 1
        fix = "return one float; wrap an environment with several agents as a PettingZoo environment"
        findings.error("reward to be a number", found, fix if several else "return float(reward)")
    elif not np.isfinite(reward):
        findings.error("reward to be finite", f"{reward}{owner}", "look for a division by zero or log(0)")


def check_flag(findings: Findings, flag: Any, name: str, owner: str) -> None:
    if not isinstance(flag, (bool, np.bool_)):
        findings.error(f"`{name}` to be a bool", f"{type(flag).__name__}: {_show(flag)}{owner}", f"return bool({name})")


def same(one: Any, other: Any) -> bool:
    """Return whether two native observations, or rewards, are equal; NaN equals NaN."""
    ones, others = list(parts_of(one)), list(parts_of(other))
    return len(ones) == len(others) and all(
        path == other_path and _same_array(np.asarray(value), np.asarray(other_value))
        for (path, value), (other_path, other_value) in zip(ones, others, strict=True)
    )


def _same_array(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" and other.dtype.kind == "f")


def _show(value: Any) -> str:
    return np.array2string(np.asarray(value), threshold=8, edgeitems=3).replace("\n", "")
