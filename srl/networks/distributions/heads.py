"""From an action space to the distribution over it."""

from __future__ import annotations

from collections.abc import Iterator

from srl.api.spaces import Dict, Discrete, MultiDiscrete, Space
from srl.base.tree import joined
from srl.networks.distributions.composite import Composite
from srl.networks.distributions.discrete import Categorical, Distribution, MultiCategorical
from srl.networks.distributions.frame import frame_of, full_frame
from srl.networks.distributions.gaussian import DiagonalGaussian
from srl.networks.distributions.squashed import SquashedGaussian
from srl.networks.options import NetworkOptions
from srl.networks.spaces.supported import check_action_space


def distribution_for(action: Space, options: NetworkOptions | None = None) -> Distribution:
    """The distribution over an action space; ValueError if there is none."""
    options = options or NetworkOptions()
    check_action_space(action, options)
    if isinstance(action, Dict):
        return Composite(tuple(_parts(action, "", options)))
    if isinstance(action, Discrete):
        return Categorical(action.n)
    if isinstance(action, MultiDiscrete):
        return MultiCategorical(tuple(action.nvec))
    shape, free_std = tuple(action.shape), options.std == "free"
    if options.box == "squashed":
        return SquashedGaussian(full_frame(action), shape, free_std, options.initial_std)
    return DiagonalGaussian(shape, free_std, options.initial_std, frame_of(action))


def _parts(action: Dict, path: str, options: NetworkOptions) -> Iterator[tuple[str, Distribution]]:
    for name, item in sorted(action.items.items()):
        if isinstance(item, Dict):
            yield from _parts(item, joined(path, name), options)
        else:
            yield joined(path, name), distribution_for(item, options)
