"""Masks of actions: where environments give them, and a check that something is left to choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import numpy as np

from srl.api.lanes import LaneSpec
from srl.api.spaces import Box, Dict, Space, choice_sizes
from srl.base.tree import Array, Tree, leaves

T = TypeVar("T")
MASK_KEY = "action_mask"
"""In a Dict observation, or in `info`: one number for each choice, 0 where it is forbidden. An algorithm's `mask_key`
is another name for both."""
OBSERVATION = "observation"
"""What an observation is called beside a mask from `info`, unless it has names already."""

MaskCheck: TypeAlias = Callable[[Tree, Array], dict[int, str]]


def has_mask(spec: LaneSpec) -> bool:
    """Whether the observations of a team have an action mask."""
    return any(isinstance(team.observation, Dict) and team.mask_key in team.observation.items for team in spec.teams)


def may_have_mask(observation: Space, action: Space, key: str = MASK_KEY) -> bool:
    """Whether a mask in `info` would be of use: there are choices, and the observation has none."""
    return bool(choice_sizes(action)) and not (isinstance(observation, Dict) and key in observation.items)


def gives_mask(make: Callable[[], Any], key: str = MASK_KEY) -> bool:
    """Whether the infos of an environment have a mask: one more copy is reset to find out."""
    return asked(make, lambda environment: key in environment.reset(seed=0)[1], otherwise=False)


def asked(make: Callable[[], Any], question: Callable[[Any], T], otherwise: T) -> T:
    """What an environment answers that is made for this question only; `otherwise` where it fails."""
    environment = None
    try:
        environment = make()
        return question(environment)
    except Exception:
        return otherwise  # The lanes will meet the same error, and report it.
    finally:
        with suppress(Exception):
            if environment is not None:
                environment.close()


def with_mask(observation: Space, action: Space, key: str = MASK_KEY) -> Dict:
    """The observation with a mask from `info` as one more part."""
    mask = Box((sum(choice_sizes(action)),), "uint8", 0.0, 1.0)
    items = observation.items if isinstance(observation, Dict) else {OBSERVATION: observation}
    return Dict({**items, key: mask})


def from_info(info: Mapping[str, Any], num_choices: int, *leading: int, key: str = MASK_KEY) -> Array:
    """The mask in an info, [*leading, choices]; those of several choices may come apart, as a tuple or dictionary."""
    if key not in info:
        raise ValueError(f"info has no {key!r}, which it had at the first reset")
    mask = info[key]
    if isinstance(mask, Mapping):
        mask = tuple(leaf for _, leaf in leaves(mask))
    parts = mask if isinstance(mask, tuple) else (mask,)
    flat = np.concatenate([np.asarray(part).reshape(*leading, -1) for part in parts], axis=-1)
    if flat.shape != (*leading, num_choices):
        raise ValueError(f"info[{key!r}] has {flat.shape[-1]} numbers, the actions have {num_choices} choices")
    allowed: Array = (flat != 0).astype(np.uint8)
    return allowed


def mask_check(observation: Space, action: Space, key: str = MASK_KEY) -> MaskCheck | None:
    """A function (observation [L, ...], acting [L]) -> what is wrong with each lane that must act and may do nothing;
    None where there are no masks."""
    sizes = choice_sizes(action)
    if not (sizes and isinstance(observation, Dict) and key in observation.items):
        return None
    starts = np.cumsum([0, *sizes])[:-1]

    def check(tree: Tree, acting: Array) -> dict[int, str]:
        allowed = allowed_choices(tree, len(acting), key)
        if allowed is None or allowed.shape[1] != sum(sizes):
            return {}  # not a mask of these actions, whatever its name
        stuck = acting & (np.add.reduceat(allowed, starts, axis=1, dtype=np.int64) == 0).any(axis=1)
        return {int(lane): f"{key!r} forbids every choice" for lane in np.flatnonzero(stuck)}

    return check


def allowed_choices(observation: Tree, num_lanes: int, key: str = MASK_KEY) -> Array | None:
    """The mask of an observation [L, ...], flat: [L, choices] bool; None where it has none."""
    if not (isinstance(observation, Mapping) and key in observation):
        return None
    parts = [np.asarray(leaf).reshape(num_lanes, -1) != 0 for _, leaf in leaves(observation[key])]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
