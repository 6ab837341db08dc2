"""Action masks: their keys in observations and infos, and a check that at least one choice is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from srl.api.lanes import LaneSpec, TeamSpec, named_texts
from srl.api.spaces import Box, Dict, Space, choice_sizes
from srl.base.tree import Array, Tree, leaves
from srl.environments.conversion import OBSERVATION
from srl.environments.factories import NamedConfig, is_known

T = TypeVar("T")
MASK_KEY = "action_mask"
"""Default key of the mask in a Dict observation or in `info`: one number per choice, 0 if forbidden. An algorithm's
`mask_key` overrides it."""
"""Key of the observation when a mask from `info` is added, unless the observation is already a Dict."""

MaskCheck: TypeAlias = Callable[[Tree, Array], dict[int, str]]


@dataclass(frozen=True)
class MaskableConfig(NamedConfig):
    """An environment, given by id or by the name of a function, whose infos may contain an action mask."""

    located: bool = False
    """Whether `name` is the name of a function rather than an id."""
    info_mask: bool | None = None
    """Whether the infos contain an action mask. None: the lanes make an extra copy to find out."""
    mask_key: str = MASK_KEY
    log_info: tuple[str, ...] = ()
    """Scalars in the last infos of episodes that are statistics of them, in addition to `is_success`."""

    def named_code(self) -> tuple[str, ...]:
        return named_texts(self.kwargs) if is_known(self.name) and not self.located else super().named_code()

    def with_mask_key(self, key: str) -> Self:
        return replace(self, mask_key=key)

    def with_log_info(self, names: tuple[str, ...]) -> Self:
        return replace(self, log_info=names)

    def with_spec(self, spec: LaneSpec) -> Self:
        masked = any(_in_observation(team.observation, team.mask_key) for team in spec.teams)
        return self if self.info_mask is not None else replace(self, info_mask=masked)


def masked_team(
    agent: str, observation: Space, action: Space, key: str, find_mask: Callable[[], bool], aligned: bool = True
) -> tuple[TeamSpec, int]:
    """Return one agent's team, and the number of choices in the masks in its infos (0: no masks).

    A mask in the infos is added to the observation under `key`, unless the observation already has one. `find_mask`
    returns whether the infos contain a mask.
    """
    num_choices = sum(choice_sizes(action))
    if num_choices and not _in_observation(observation, key) and find_mask():
        items = observation.items if isinstance(observation, Dict) else {OBSERVATION: observation}
        observation = Dict({**items, key: Box((num_choices,), "uint8", 0.0, 1.0)})
    else:
        num_choices = 0
    return TeamSpec(agent, (agent,), observation, action, aligned, key), num_choices


def _in_observation(observation: Space, key: str) -> bool:
    return isinstance(observation, Dict) and key in observation.items


def gives_mask(make: Callable[[], Any], key: str = MASK_KEY) -> bool:
    """Make and reset an extra copy; return whether its info contains a mask."""
    return inspect(make, lambda environment: key in environment.reset(seed=0)[1], otherwise=False)


def inspect(make: Callable[[], Any], question: Callable[[Any], T], otherwise: T) -> T:
    """Make an environment, return `question(environment)`, or `otherwise` if anything fails, and close it."""
    environment = None
    try:
        environment = make()
        return question(environment)
    except Exception:
        return otherwise  # The lanes will raise the same error and report it.
    finally:
        with suppress(Exception):
            if environment is not None:
                environment.close()


def from_info(info: Mapping[str, Any], num_choices: int, *leading: int, key: str = MASK_KEY) -> Array:
    """Return the mask [*leading, choices] in an info, where it may also be a tuple or dictionary of arrays."""
    if key not in info:
        raise ValueError(f"info has no key {key!r}, although it had one at the first reset")
    mask = info[key]
    if isinstance(mask, Mapping):
        mask = tuple(leaf for _, leaf in leaves(mask))
    parts = mask if isinstance(mask, tuple) else (mask,)
    flat = np.concatenate([np.asarray(part).reshape(*leading, -1) for part in parts], axis=-1)
    if flat.shape != (*leading, num_choices):
        raise ValueError(f"info[{key!r}] has {flat.shape[-1]} entries, but the action space has {num_choices} choices")
    allowed: Array = (flat != 0).astype(np.uint8)
    return allowed


def mask_check(observation: Space, action: Space, key: str = MASK_KEY) -> MaskCheck | None:
    """Return a function ``(observation, acting) -> messages by lane`` that finds lanes that are `acting` [L] but have
    no allowed choice; None if there are no masks."""
    sizes = choice_sizes(action)
    if not sizes or not _in_observation(observation, key):
        return None
    starts = np.cumsum([0, *sizes])[:-1]

    def check(tree: Tree, acting: Array) -> dict[int, str]:
        allowed = allowed_choices(tree, len(acting), key)
        if allowed is None or allowed.shape[1] != sum(sizes):
            return {}  # not a mask for these actions, despite its name
        blocked = acting & (np.add.reduceat(allowed, starts, axis=1, dtype=np.int64) == 0).any(axis=1)
        return {int(lane): f"{key!r} forbids every choice" for lane in np.flatnonzero(blocked)}

    return check


def allowed_choices(observation: Tree, num_lanes: int, key: str = MASK_KEY) -> Array | None:
    """Return the mask in an observation [L, ...] as a bool array [L, choices], or None if there is none."""
    if not (isinstance(observation, Mapping) and key in observation):
        return None
    parts = [np.asarray(leaf).reshape(num_lanes, -1) != 0 for _, leaf in leaves(observation[key])]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
