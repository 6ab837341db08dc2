"""Which network: the options that all algorithms with an actor-critic share. Without torch, so that naming one on a
command line or in a controller costs nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

STATE_LOG_STD = (-5.0, 2.0)
"""Logarithms of the least and the largest standard deviation that a network may put out, in units of the bounds."""


@dataclass(frozen=True)
class NetworkOptions:
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Layers on top of the observation, or of what the encoders of its parts make of it; a single image has none."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Between these layers."""
    body: Literal["nature", "lean", "impala"] = "nature"
    """Convolutions for images: those of Mnih et al. 2015 (three layers; others for small images), those of Mnih et al.
    2013 (two narrow layers, a third of the work), or the residual network of Espeholt et al. 2018, which takes several
    times as long."""
    towers: Literal["auto", "shared", "separate"] = "auto"
    """Do actor and critic have all but their last layers in common? `auto`: yes for images and with a memory, unless
    there are entities, or parts that only the critic sees."""
    memory: Literal["none", "gru", "lstm"] = "none"
    """What the policy remembers of its episode, behind the layers."""
    memory_size: int = 128
    """Units of the memory."""
    chunk: int = 32
    """With a memory: rows through which the gradient goes back in time, from the memory stored at the first of them. A
    block shorter than this is one chunk."""
    burn_in: int = 0
    """With a memory: rows before each chunk, if its block has them, that are only run through to freshen the memory."""
    entities: tuple[str, ...] = ()
    """Parts of a Dict observation that are things of one kind each, a Box [number, features], with the parts that say
    which of them count: KEY, KEY:SEEN or KEY:SEEN:THERE, e.g. `boxes:box_visible:box_exists`. The actor attends to
    those seen, the critic to those there. All other parts are the agent's own."""
    scans: tuple[str, ...] = ()
    """Parts that are numbers in directions all around (a lidar), for a convolution along the circle."""
    entity_size: int = 128
    """Numbers into which each entity is embedded."""
    attention_heads: int = 4
    """Of the entities' attention to each other."""
    global_keys: tuple[str, ...] = ()
    """Parts of a Dict observation that only the critic sees. To act, they are not needed."""
    box: Literal["clipped", "squashed"] = "clipped"
    """Box actions: Gaussian, and clipped by the environment's adapter, or squashed by tanh into finite bounds. Both
    are in units of the bounds where an element has two: mean 0 is their middle, deviation 1 half their distance."""
    std: Literal["free", "state"] = "free"
    """Their standard deviations: the same for every observation, or put out by the network (then 0.0067 to 7.4)."""
    initial_std: float = 1.0
    """What these start from, in the same units."""
    mask_key: str = "action_mask"
    """Part of a Dict observation that says which choices are allowed (not 0): one number for each choice of a Discrete,
    of all of a MultiDiscrete, or of all such parts in the order of their names. It is not shown to the network."""
    network: str = ""
    """Your own network: `package.module:function` or `path/file.py:function`. The function gets the observation and the
    action space and returns a torch.nn.Module: observation tree [B, ...] -> (distribution parameters [B, n], value
    [B]). n: the logits of Discrete(n), of all choices of a MultiDiscrete, or means and then log-stds for a Box. With an
    attribute `state_size` it has a memory: (observation, state [B, S]) -> (parameters, value, state)."""

    def __post_init__(self) -> None:
        if not self.hidden_sizes or min(self.hidden_sizes) < 1:
            raise ValueError(f"hidden_sizes must be positive, at least one; found {self.hidden_sizes}")
        self._check_counts("memory_size", "chunk", "entity_size", "attention_heads")
        self._check_not_negative("burn_in")
        if not 0.0 < self.initial_std < math.inf:
            raise ValueError(f"initial_std must be a positive number, found {self.initial_std}")
        least, largest = map(math.exp, STATE_LOG_STD)
        if self.std == "state" and not least < self.initial_std < largest:
            raise ValueError(
                f"initial_std must be between {least:.2g} and {largest:.2g}, the limits of a standard deviation that "
                f"the network puts out; found {self.initial_std}"
            )
        if self.entities and self.entity_size % self.attention_heads:
            raise ValueError(
                f"entity_size must be a multiple of attention_heads; found {self.entity_size} and "
                f"{self.attention_heads}"
            )

    def _check_range(self, *names: str) -> None:
        for name in names:
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], found {getattr(self, name)}")

    def _check_positive(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None and not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")

    def _check_not_negative(self, *names: str) -> None:
        for name in names:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be 0 or more, found {getattr(self, name)}")

    def _check_counts(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")

    @property
    def separate(self) -> bool:
        """Whether actor and critic of a network that is not the plainest have nothing in common."""
        apart = bool(self.entities or self.scans or self.global_keys)
        return self.towers == "separate" or (self.towers == "auto" and apart)

    @property
    def state_size(self) -> int:
        """Numbers that the default network remembers for each lane."""
        sizes = {"none": 0, "gru": self.memory_size, "lstm": 2 * self.memory_size}
        return sizes[self.memory] * (2 if self.separate else 1)
