"""Action spaces that the networks support, and action masks in observations."""

from __future__ import annotations

import math

import numpy as np

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, array_spec, choice_sizes
from srl.base.tree import leaves
from srl.networks.options import NetworkOptions


def check_action_space(action: Space, options: NetworkOptions | None = None) -> None:
    """Raise ValueError if no distribution supports the space."""
    if isinstance(action, Dict) and action.items:
        for item in action.items.values():
            check_action_space(item, options)
        return
    discrete = isinstance(action, Discrete) and action.n >= 1
    several = isinstance(action, MultiDiscrete) and bool(action.nvec) and min(action.nvec) >= 1
    real = isinstance(action, Box) and action.dtype in ("float32", "float64") and math.prod(action.shape) >= 1
    if not (discrete or several or real):
        raise ValueError(
            f"no distribution for the action space {action}; supported are Discrete, MultiDiscrete (also "
            "MultiBinary), Box of float32 or float64, and Dict (also Tuple) of these, none of them empty"
        )
    if isinstance(action, Box) and options is not None and options.box == "squashed":
        low, high = np.asarray(action.low), np.asarray(action.high)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ValueError(f"squashed actions need finite bounds, low < high; found {action}; use `clipped` instead")


def split_mask(observation: Space, action: Space, key: str) -> tuple[Space, bool]:
    """Return the observation space without its action mask, and whether it has one: a part named `key` with one number
    per choice of the action space. Raises ValueError if that part has a different size."""
    choices = sum(choice_sizes(action))
    if not (key and isinstance(observation, Dict) and key in observation.items and choices):
        return observation, False
    found = sum(math.prod(spec.shape) for _, spec in leaves(array_spec(observation.items[key])))
    if found != choices:
        raise ValueError(
            f"observation {key!r} has {found} entries, but an action mask for {action} needs {choices}; if it is not a "
            "mask, set mask_key to another name"
        )
    rest = {name: item for name, item in observation.items.items() if name != key}
    if not rest:
        raise ValueError(f"the observation has only the mask {key!r}; add a part for the policy to see")
    return Dict(rest), True
