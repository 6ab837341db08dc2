"""Gymnasium wrappers: repeated actions, smaller images; attributes of wrapped environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.api.control import OptionValue
from srl.base.errors import nearest
from srl.base.tree import Array

GRAY = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in the brightness of a pixel (ITU-R BT.601)."""


class RepeatAction(gymnasium.Wrapper):  # type: ignore[misc]
    """A wrapper that repeats each action `times` times, or until the episode ends, and sums the rewards.

    Random actions then last long enough to have an effect: noise that changes at every step averages out before a car
    can climb a hill. In MountainCarContinuous, an untrained policy reaches the goal in 2 % of episodes, but in 80 % if
    it chooses an action only every 8 steps.
    """

    def __init__(self, environment: Any, times: int) -> None:
        super().__init__(environment)
        self._times = times

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._times):
            observation, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info


class SmallerImages(gymnasium.ObservationWrapper[Any, Any, Any]):  # type: ignore[misc]
    """A wrapper that shrinks the images in observations to `size` x `size` pixels and, with `grayscale`, removes their
    colors. Images are bytes [height, width] or [height, width, 3], alone or in a Dict; other parts stay as they are."""

    def __init__(self, environment: Any, size: int | None, grayscale: bool) -> None:
        super().__init__(environment)
        self._size, self._grayscale = size, grayscale
        space = environment.observation_space
        self._keys = [key for key, item in space.items() if _is_image(item)] if isinstance(space, spaces.Dict) else []
        if not self._keys and not _is_image(space):
            raise ValueError(
                "image_size and grayscale need images in the observation, bytes [height, width] or [height, width, 3]; "
                f"found {space}"
            )
        if self._keys:
            smaller = {key: self._space(item) if key in self._keys else item for key, item in space.items()}
            self.observation_space = spaces.Dict(smaller)
        else:
            self.observation_space = self._space(space)

    def observation(self, observation: Any) -> Any:
        if not self._keys:
            return self._smaller(observation)
        return {**observation, **{key: self._smaller(observation[key]) for key in self._keys}}

    def _space(self, image: Any) -> Any:
        side = (self._size, self._size) if self._size is not None else image.shape[:2]
        return spaces.Box(0, 255, (*side, *(() if self._grayscale else image.shape[2:])), np.uint8)

    def _smaller(self, image: Array) -> Array:
        pixels: Array = image
        if self._grayscale and image.ndim == 3:
            pixels = image @ GRAY
        if self._size is not None:
            pixels = shrunk(pixels, self._size)
        return pixels if pixels.dtype == np.uint8 else np.rint(pixels).astype(np.uint8)


def shrunk(image: Array, size: int) -> Array:
    """Return an image [height, width, ...] with `size` x `size` pixels, each the mean of the pixels that it replaces.
    Along a side that is smaller than `size`, pixels are repeated."""
    for axis in (0, 1):
        side = image.shape[axis]
        starts = np.arange(size) * side // size
        if side <= size:
            image = image.take(starts, axis)
            continue
        counts = np.diff(starts, append=side).reshape(-1, *(1,) * (image.ndim - 1 - axis))
        image = np.add.reduceat(image, starts, axis, dtype=np.float32) / counts
    return image


def set_attribute(environment: Any, name: str, value: OptionValue) -> None:
    """Set an attribute of an environment or of one of its wrappers, the outermost that has it."""
    if not environment.set_wrapper_attr(name, value, force=False):
        bare = environment.unwrapped
        known = [
            each for each, old in vars(bare).items() if each[:1] != "_" and isinstance(old, (bool, int, float, str))
        ]
        raise AttributeError(f"{type(bare).__name__} has no attribute {name!r}{nearest(name, known)}")


def _is_image(space: Any) -> bool:
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[2] == 3)
