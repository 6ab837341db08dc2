"""Which spaces the networks serve. Without torch, so that a controller can ask."""

from __future__ import annotations

import math

import numpy as np

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, array_spec, choice_sizes
from srl.base.tree import leaves
from srl.networks.options import NetworkOptions


def check_action_space(action: Space, options: NetworkOptions | None = None) -> None:
    """Raise ValueError for a space that no distribution covers."""
    if isinstance(action, Dict) and action.items:
        for item in action.items.values():
            check_action_space(item, options)
        return
    discrete = isinstance(action, Discrete) and action.n >= 1
    several = isinstance(action, MultiDiscrete) and bool(action.nvec) and min(action.nvec) >= 1
    real = isinstance(action, Box) and action.dtype in ("float32", "float64") and math.prod(action.shape) >= 1
    if not (discrete or several or real):
        raise ValueError(
            f"no distribution for the action space {action}; supported are Discrete, MultiDiscrete (as which "
            "MultiBinary counts), Box of float32 or float64, and Dict (as which Tuple counts) of these, none of them "
            "empty"
        )
    if isinstance(action, Box) and options is not None and options.box == "squashed":
        low, high = np.asarray(action.low), np.asarray(action.high)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ValueError(f"squashed actions need finite bounds, low < high; found {action}; say `clipped` instead")


def split_mask(observation: Space, action: Space, key: str) -> tuple[Space, bool]:
    """The observation without its mask of actions, and whether there is one: a part called `key` with as many numbers
    as the actions have choices. ValueError if it has another number of them."""
    choices = sum(choice_sizes(action))
    if not (key and isinstance(observation, Dict) and key in observation.items and choices):
        return observation, False
    found = sum(math.prod(spec.shape) for _, spec in leaves(array_spec(observation.items[key])))
    if found != choices:
        raise ValueError(
            f"observation {key!r} has {found} numbers and would be a mask of {choices} choices of the action space "
            f"{action}; if it is no mask, give the mask_key another name"
        )
    rest = {name: item for name, item in observation.items.items() if name != key}
    if not rest:
        raise ValueError(f"the observation has nothing but the mask {key!r}; give the policy something to see")
    return Dict(rest), True
