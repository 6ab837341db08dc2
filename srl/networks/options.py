"""Network options, shared by all actor-critic algorithms. This module does not import torch, so that naming an
algorithm on the command line or in a controller stays fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

MEMORY_OPTIONS = ("memory", "memory_size", "chunk", "burn_in")
STATE_LOG_STD = (-5.0, 2.0)
"""Smallest and largest log standard deviation that a network can output, in units of the bounds."""


@dataclass(frozen=True)
class NetworkOptions:
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Sizes of the dense layers. They follow the observation or its encoder; a single image has none."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation between these layers."""
    body: Literal["nature", "lean", "impala"] = "nature"
    """Convolutions for images: `nature` (Mnih et al. 2015, three layers; 3x3 convolutions for small images), `lean`
    (Mnih et al. 2013, two narrow layers, a third of the work), or `impala` (the residual network of Espeholt et al.
    2018, which takes several times as long)."""
    towers: Literal["auto", "shared", "separate"] = "auto"
    """Whether actor and critic share all but their last layers. `auto`: shared with images or a memory, unless there
    are entities or parts that only the critic sees."""
    memory: Literal["none", "gru", "lstm"] = "none"
    """Recurrent layer after the dense layers."""
    memory_size: int = 128
    """Number of units in the memory."""
    chunk: int = 32
    """With a memory: length of backpropagation through time, in steps. Each chunk starts from the memory stored at its
    first step. A shorter block is one chunk."""
    burn_in: int = 0
    """With a memory: steps before each chunk, if available in its block, that only refresh the memory."""
    entities: tuple[str, ...] = ()
    """Parts of a Dict observation that each hold entities of one kind, a Box [number, features], and the names of their
    masks: KEY[:ACTOR_MASK[:CRITIC_MASK]], e.g. `boxes:box_visible:box_exists`. The actor attends to entities that it
    sees, the critic to entities that exist. All other parts describe the agent itself."""
    scans: tuple[str, ...] = ()
    """Parts with measurements in directions around the agent (such as a lidar), encoded by a circular convolution."""
    entity_size: int = 128
    """Size of each entity's embedding."""
    attention_heads: int = 4
    """Number of attention heads between entities."""
    global_keys: tuple[str, ...] = ()
    """Parts of a Dict observation that only the critic sees. They are not needed to act."""
    box: Literal["clipped", "squashed"] = "clipped"
    """Distribution of Box actions: Gaussian, clipped by the environment adapter, or squashed by tanh into finite
    bounds. Elements with two bounds are scaled: mean 0 is the midpoint, standard deviation 1 is half the range."""
    std: Literal["free", "state"] = "free"
    """Standard deviations of Box actions: the same for every observation, or output by the network (0.0067 to 7.4)."""
    initial_std: float = 1.0
    """Initial standard deviation of Box actions; for elements with two bounds, 1 is half the range."""
    mask_key: str = "action_mask"
    """Part of a Dict observation that is the action mask: one number for each choice of a Discrete, of all parts of a
    MultiDiscrete, or of all such parts of a Dict in sorted order; 0 forbids the choice. The network does not see it."""
    network: str = ""
    """Custom network: `package.module:function` or `path/file.py:function`. The function takes the observation and
    action spaces and returns a torch.nn.Module: observation tree [B, ...] -> (distribution parameters [B, n], value
    [B]). The parameters are the logits of a Discrete or of all choices of a MultiDiscrete, or means followed by
    log-stds for a Box. See docs/howto/policy.md."""

    def named_code(self) -> tuple[str, ...]:
        return (self.network,) if self.network else ()

    def __post_init__(self) -> None:
        if not self.hidden_sizes or min(self.hidden_sizes) < 1:
            raise ValueError(f"hidden_sizes must be positive, at least one; found {self.hidden_sizes}")
        if self.activation not in ("tanh", "relu"):
            raise ValueError(f"activation must be 'tanh' or 'relu', found {self.activation!r}")
        self._check_counts("memory_size", "chunk", "entity_size", "attention_heads")
        self._check_not_negative("burn_in")
        if not 0.0 < self.initial_std < math.inf:
            raise ValueError(f"initial_std must be a positive number, found {self.initial_std}")
        least, largest = map(math.exp, STATE_LOG_STD)
        if self.std == "state" and not least < self.initial_std < largest:
            raise ValueError(
                f"initial_std must be between {least:.2g} and {largest:.2g}, the limits of a standard deviation that "
                f"the network outputs; found {self.initial_std}"
            )
        if self.entities and self.entity_size % self.attention_heads:
            found = f"{self.entity_size} and {self.attention_heads}"
            raise ValueError(f"entity_size must be a multiple of attention_heads, found {found}")

    def _check_range(self, *names: str) -> None:
        self._check_all(names, "in [0, 1]", lambda value: 0.0 <= value <= 1.0)

    def _check_positive(self, *names: str) -> None:
        self._check_all(names, "positive", lambda value: value is None or value > 0.0)

    def _check_not_negative(self, *names: str) -> None:
        self._check_all(names, "0 or more", lambda value: value >= 0)

    def _check_counts(self, *names: str) -> None:
        self._check_all(names, "at least 1", lambda value: value >= 1)

    def _check_all(self, names: tuple[str, ...], expected: str, holds: Callable[[Any], bool]) -> None:
        for name in names:
            if not holds(getattr(self, name)):
                raise ValueError(f"{name} must be {expected}, found {getattr(self, name)}")

    @property
    def separate(self) -> bool:
        """Whether actor and critic share no layers in networks with images, entities or a memory."""
        apart = bool(self.entities or self.scans or self.global_keys)
        return self.towers == "separate" or (self.towers == "auto" and apart)

    @property
    def state_size(self) -> int:
        """Size of each lane's memory in the default network."""
        sizes = {"none": 0, "gru": self.memory_size, "lstm": 2 * self.memory_size}
        return sizes[self.memory] * (2 if self.separate else 1)
