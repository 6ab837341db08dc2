"""Random shifts of images: by hand, against a slow reference, and their distribution."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from srl.algorithms.dqn.config import DQNConfig
from srl.algorithms.offpolicy.config import RandomShift
from srl.algorithms.offpolicy.random_shift import shift_images
from srl.algorithms.r2d2.config import R2D2Config
from srl.algorithms.sac.config import SACConfig
from srl.api.dataflow import SequenceBatch, TransitionBatch
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.base.tree import Array

ACTION = Discrete(2)
STACK = Box((4, 7, 7), "uint8", 0.0, 255.0)


def slow_shift(image: Array, axes: tuple[int, int], down: int, right: int) -> Array:
    """Pad an image by repeating its border, and cut it to its size."""
    pad = 8
    padded = np.pad(image, [(pad, pad) if axis in axes else (0, 0) for axis in range(image.ndim)], mode="edge")
    for axis, offset in zip(axes, (down, right), strict=True):
        padded = padded.take(np.arange(pad + offset, pad + offset + image.shape[axis]), axis)
    return padded


def test_an_image_shifts_and_repeats_its_border() -> None:
    image = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.uint8)
    images = np.stack([image] * 4)
    shift_images(images, "HW", np.array([[0, 0], [1, 0], [0, -1], [2, 2]]))
    assert images[0].tolist() == image.tolist()
    assert images[1].tolist() == [[4, 5, 6], [7, 8, 9], [7, 8, 9]]
    assert images[2].tolist() == [[1, 1, 2], [4, 4, 5], [7, 7, 8]]
    assert images[3].tolist() == [[9, 9, 9], [9, 9, 9], [9, 9, 9]]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(
    ("order", "shape"), [("HW", (6, 9)), ("CHW", (4, 6, 9)), ("HWC", (6, 9, 3)), ("SHWC", (2, 6, 9, 3))]
)
def test_shifts_of_all_layouts_are_those_of_padded_images(order: str, shape: tuple[int, ...], dtype: str) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (3, 5, *shape)).astype(dtype)
    offsets = random.integers(-5, 6, (3, 5, 2))
    before = images.copy()
    shift_images(images, order, offsets)
    for place in np.ndindex(3, 5):
        axes = order.index("H"), order.index("W")
        np.testing.assert_array_equal(images[place], slow_shift(before[place], axes, *offsets[place]))


def offsets_of(image: Array) -> tuple[int, int]:
    """Return how far an image of its own coordinates, 16 * y + x, is shifted."""
    middle = int(image[3, 3])
    return middle // 16 - 3, middle % 16 - 3


def coordinates(*leading: int) -> Array:
    image = 16 * np.arange(7)[:, None] + np.arange(7)
    return np.broadcast_to(image, (*leading, 4, 7, 7)).astype(np.uint8, order="C")


def transitions(num_steps: int, size: int, observation: Any, after: Any) -> TransitionBatch:
    numbers = np.ones((num_steps, size), np.float32)
    action = np.zeros((num_steps, size), np.int64)
    return TransitionBatch(observation, {"action": action}, numbers, numbers, after, numbers, num_steps)


def test_stacked_frames_shift_together_and_two_observations_independently() -> None:
    shift = RandomShift(2).build(STACK, ACTION)
    batch = shift(transitions(40, 100, coordinates(40, 100), coordinates(40, 100)), np.random.default_rng(1))
    for images in (batch.observation, batch.next_observation):
        np.testing.assert_array_equal(images, np.broadcast_to(images[:, :, :1], images.shape))
    found = [
        (*offsets_of(batch.observation[place][0]), *offsets_of(batch.next_observation[place][0]))
        for place in np.ndindex(40, 100)
    ]
    assert {offset for offsets in found for offset in offsets} == {-2, -1, 0, 1, 2}
    for first in range(4):  # each offset is uniform, and so is each pair of them: all four are independent
        for second in range(first):
            counts = Counter((offsets[first], offsets[second]) for offsets in found)
            chi_square = sum((counts[a, b] - 160) ** 2 / 160 for a in range(-2, 3) for b in range(-2, 3))
            assert chi_square < 64.0  # 24 degrees of freedom: p < 2e-5


def test_the_images_of_a_sequence_shift_together() -> None:
    shift = RandomShift(2).build(STACK, ACTION)
    flags = np.zeros((3, 6, 8), bool)
    rewards, weight = np.zeros((3, 6, 8), np.float32), np.ones((3, 8), np.float32)
    parts: dict[str, Any] = {
        "reward": rewards,
        "terminated": flags,
        "truncated": flags,
        "acting": flags,
        "first": flags,
    }
    batch = SequenceBatch(coordinates(3, 6, 8), {}, **parts, valid=flags, state=None, weight=weight, num_decisions=0)
    images = shift(batch, np.random.default_rng(1)).observation
    np.testing.assert_array_equal(images, np.broadcast_to(images[:, :1], images.shape))
    assert len({offsets_of(images[step, 0, lane, 0]) for step, lane in np.ndindex(3, 8)}) > 8


def test_only_the_images_of_an_observation_shift() -> None:
    space = Dict({"camera": Box((9, 9, 3), "uint8", 0.0, 255.0), "speed": Box((2,), "float32", -1.0, 1.0)})
    random = np.random.default_rng(2)
    camera = random.integers(0, 255, (2, 8, 9, 9, 3)).astype(np.uint8)
    speed = random.random((2, 8, 2)).astype(np.float32)
    parts: dict[str, Array] = {"camera": camera, "speed": speed}
    batch = transitions(2, 8, {k: v.copy() for k, v in parts.items()}, {k: v.copy() for k, v in parts.items()})
    changed = RandomShift(4).build(space, ACTION)(batch, np.random.default_rng(0))
    np.testing.assert_array_equal(changed.observation["speed"], speed)
    assert (changed.observation["camera"] != camera).any()
    assert (changed.next_observation["camera"] != changed.observation["camera"]).any()


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Box((17,), "float32", -1.0, 1.0), "random_shift needs image observations, found Box"),
        (Dict({"speed": Box((2,), "float32", -1.0, 1.0)}), "random_shift needs image observations"),
        (Box((7, 9, 3), "uint8", 0.0, 255.0), "less than the sides of images, found 7 for the observation with 7 x 9"),
    ],
)
def test_observations_that_cannot_shift_are_refused(space: Space, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RandomShift(7).build(space, ACTION)


@pytest.mark.parametrize("kind", [SACConfig, DQNConfig, R2D2Config])
def test_off_policy_algorithms_shift_on_request(kind: Any) -> None:
    assert kind().dataflow().transform is None
    assert kind(random_shift=4).dataflow().transform == RandomShift(4)
    with pytest.raises(ValueError, match="random_shift"):
        kind(random_shift=-1)
