"""Checks of the values that an environment returns: spaces, observations, rewards, ends of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.base.tree import Array
from srl.environments.spaces import from_gymnasium
from srl.testing.findings import Findings


def check_spaces(findings: Findings, observation: Any, action: Any, who: str) -> None:
    for role, space in (("observation", observation), ("action", action)):
        if not isinstance(space, spaces.Space):
            findings.error(
                f"{role}_space to be a Gymnasium space", f"{space!r}{who}", f"set self.{role}_space in __init__"
            )
            continue
        try:
            from_gymnasium(space, role)
        except ValueError as error:
            findings.error(
                f"a supported {role} space", f"{error}{who}", "use a supported space, or convert it in a wrapper"
            )
    for path, leaf in _leaves(action):
        if isinstance(leaf, spaces.Box) and not leaf.is_bounded():
            findings.warning(
                f"the action space{path} to have finite bounds",
                f"{leaf}{who}",
                "set bounds: without them actions are neither clipped nor scaled",
            )
    for path, leaf in _leaves(observation):
        if isinstance(leaf, spaces.Box) and leaf.dtype == np.float64:
            findings.warning(
                f"observations{path} to have dtype float32",
                f"float64{who}",
                "declare and return float32, which needs no conversion at every step",
            )


def _leaves(space: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(space, spaces.Dict):
        for key, item in space.spaces.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, item in enumerate(space.spaces):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, space


def arrays_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the parts of a native observation, each with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from arrays_of(item, f"{path}[{key!r}]")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from arrays_of(item, f"{path}[{index}]")
    else:
        yield path, value


def check_observation(findings: Findings, space: Any, value: Any, who: str, path: str = "") -> None:
    what = f"observation{path}"
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        items = dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        found = dict(value) if isinstance(value, Mapping) else dict(enumerate(value)) if type(value) is tuple else None
        if found is None or set(found) != set(items):
            keys = type(value).__name__ if found is None else f"keys {list(found)}"
            findings.error(f"{what} to have the keys {list(items)}", f"{keys}{who}", "return every key of the space")
            return
        for key, item in items.items():
            check_observation(findings, item, found[key], who, f"{path}[{key!r}]")
    elif isinstance(space, spaces.Box):
        _check_box(findings, space, value, what, who)
    elif not space.contains(value):
        findings.error(f"{what} to be in its space {space}", f"{value!r}{who}", "correct the value or the space")


def _check_box(findings: Findings, space: Any, value: Any, what: str, who: str) -> None:
    if not isinstance(value, (np.ndarray, np.generic)):
        findings.error(
            f"{what} to be a numpy array", f"{type(value).__name__}{who}", "return np.array(..., dtype=space.dtype)"
        )
        return
    if value.shape != space.shape:
        findings.error(
            f"{what} to have shape {space.shape}", f"shape {value.shape}{who}", "correct the shape or the space"
        )
        return
    if value.dtype != space.dtype:
        findings.error(
            f"{what} to have dtype {space.dtype}", f"dtype {value.dtype}{who}", "return .astype(space.dtype)"
        )
    if value.dtype.kind not in "fiub":
        return
    if not np.isfinite(value).all():
        findings.error(f"{what} to be finite", f"{_show(value)}{who}", "look for a division by zero or an overflow")
    elif (value < space.low).any() or (value > space.high).any():
        findings.error(
            f"{what} to be within the bounds of its space",
            f"{_show(value)}{who}, bounds {space.low.min():g} to {space.high.max():g}",
            "widen the bounds of the space, or clip the observation",
        )


def check_reward(findings: Findings, reward: Any, who: str) -> None:
    if not isinstance(reward, (int, float, np.integer, np.floating)):
        findings.error(
            "reward to be a number", f"{type(reward).__name__}: {_show(reward)}{who}", "return float(reward)"
        )
    elif not np.isfinite(reward):
        findings.error("reward to be finite", f"{reward}{who}", "look for a division by zero or log(0)")


def check_flag(findings: Findings, flag: Any, name: str, who: str) -> None:
    if not isinstance(flag, (bool, np.bool_)):
        findings.error(f"`{name}` to be a bool", f"{type(flag).__name__}: {_show(flag)}{who}", f"return bool({name})")


def same(one: Any, other: Any) -> bool:
    """Return whether two native observations, or rewards, are equal; NaN equals NaN."""
    ones, others = list(arrays_of(one)), list(arrays_of(other))
    return len(ones) == len(others) and all(
        path == other_path and _same_array(np.asarray(value), np.asarray(other_value))
        for (path, value), (other_path, other_value) in zip(ones, others, strict=True)
    )


def _same_array(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" and other.dtype.kind == "f")


def _show(value: Any) -> str:
    return np.array2string(np.asarray(value), threshold=8, edgeitems=3).replace("\n", "")
