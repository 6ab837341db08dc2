"""Parts of a Dict observation that hold entities or scans, or that only the critic sees."""

from __future__ import annotations

import math
from typing import NamedTuple

from srl.api.spaces import Box, Dict, Space, array_spec
from srl.base.errors import nearest
from srl.base.tree import ArraySpec
from srl.networks.options import NetworkOptions


class Kind(NamedTuple):
    """Entities of one kind: a part with `num` rows of `width` numbers, and the parts that mask its rows."""

    key: str
    actor_mask: str  # key of the mask of rows that the actor sees; empty: all
    critic_mask: str  # key of the mask of rows that the critic sees; empty: all
    num: int
    width: int


class Parts(NamedTuple):
    """Parts that the actor or the critic sees."""

    own: Dict | None  # everything except entities, scans and entity masks
    scans: dict[str, tuple[int, int]]  # key -> number of directions, numbers per direction
    kinds: tuple[Kind, ...]


def parts_of(observation: Space, options: NetworkOptions, critic: bool) -> Parts:
    """Return the parts for the actor or the critic. Raises ValueError if the options do not fit the observation."""
    items = _items(observation, options)
    kinds = tuple(_kind(items, text) for text in options.entities)
    scans = {key: _scan(items, key) for key in options.scans}
    taken = {*scans, *(name for kind in kinds for name in (kind.key, kind.actor_mask, kind.critic_mask))}
    hidden = set() if critic else set(options.global_keys)
    own = {key: item for key, item in items.items() if key not in taken and key not in hidden}
    return Parts(
        Dict(own) if own else None,
        {key: shape for key, shape in scans.items() if key not in hidden},
        tuple(kind for kind in kinds if kind.key not in hidden),
    )


def check_parts(observation: Space, options: NetworkOptions) -> None:
    """Raise ValueError if the options do not fit the observation or each other."""
    if not (options.entities or options.scans or options.global_keys):
        return
    items = _items(observation, options)
    for key in options.global_keys:
        if key not in items:
            raise ValueError(f"global_keys: the observation has no key {key!r}{nearest(key, items)}")
    actor = parts_of(observation, options, critic=False)
    if actor.own is None and not actor.scans:
        raise ValueError("the actor must see a part that is neither entities nor global")
    critic_sees_more = bool(options.global_keys) or any(kind.critic_mask for kind in actor.kinds)
    if critic_sees_more and options.towers == "shared":
        cause = "global_keys" if options.global_keys else "critic masks of entities"
        raise ValueError(
            f"towers='shared' cannot be combined with {cause}: the critic sees more than the actor, so they cannot "
            "share layers"
        )


def shared_rows(options: NetworkOptions) -> frozenset[str]:
    """Return the keys of entities and scans. Their rows are alike, so each column is normalized as one feature."""
    return frozenset((*options.scans, *(text.partition(":")[0] for text in options.entities)))


def _items(observation: Space, options: NetworkOptions) -> dict[str, Space]:
    if isinstance(observation, Dict):
        return dict(observation.items)
    names = [name for name in ("entities", "scans", "global_keys") if getattr(options, name)]
    raise ValueError(f"{' and '.join(names)} must name parts of a Dict observation; this one is {observation}")


def _kind(items: dict[str, Space], text: str) -> Kind:
    key, actor_mask, critic_mask = [*text.split(":"), "", ""][:3]
    if text.count(":") > 2 or not key:
        raise ValueError(f"entities must be KEY[:ACTOR_MASK[:CRITIC_MASK]], found {text!r}")
    space = items.get(key)
    if not isinstance(space, Box) or len(space.shape) != 2:
        found = f"found {space}" if space is not None else f"there is no such part{nearest(key, items)}"
        raise ValueError(f"entities {key!r} must be a Box [number, features]; {found}")
    for mask in (actor_mask, critic_mask):
        if mask and mask not in items:
            raise ValueError(f"entities {text!r}: the observation has no part {mask!r}{nearest(mask, items)}")
        if mask and (count := _count(items[mask])) != space.shape[0]:
            raise ValueError(f"entities {text!r}: the mask {mask!r} needs {space.shape[0]} entries, but has {count}")
    return Kind(key, actor_mask, critic_mask, *space.shape)


def _count(space: Space) -> int:
    spec = array_spec(space)
    return math.prod(spec.shape) if isinstance(spec, ArraySpec) else -1


def _scan(items: dict[str, Space], key: str) -> tuple[int, int]:
    space = items.get(key)
    if not isinstance(space, Box) or len(space.shape) not in (1, 2) or space.shape[0] < 2:
        found = f"found {space}" if space is not None else f"there is no such part{nearest(key, items)}"
        raise ValueError(f"scan {key!r} must be a Box [directions] or [directions, numbers]; {found}")
    return space.shape[0], math.prod(space.shape[1:])
