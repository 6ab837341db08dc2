"""Stacks of frames stored once: every row comes back exactly, whatever it is, and shared frames take no memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.reference import empty_block, spec_of

from srl.api.dataflow import Replay, Sequences, Transitions
from srl.base.shared_memory import KeptFile
from srl.base.state import NotResumable
from srl.base.tree import ArraySpec
from srl.replay.frames import FrameStore, is_stack
from srl.replay.memory import ReplayMemory, bytes_needed
from srl.replay.saved import ReplayArchive
from srl.replay.storage import Arena, RowStore

FRAME = (32, 32)
STACK = ArraySpec((4, *FRAME), "uint8")


class FrameSequence:
    """A lane of stacked frames. Episodes start with padding: zeros, or the first frame."""

    def __init__(self, rng: np.random.Generator, padding: str = "zero") -> None:
        self.rng, self.padding = rng, padding
        self.begin()

    def frame(self) -> np.ndarray:
        return self.rng.integers(0, 255, FRAME, np.uint8)

    def begin(self) -> None:
        self.stack = np.zeros((4, *FRAME), np.uint8)
        self.stack[:] = (frame := self.frame()) if self.padding == "first" else 0
        self.stack[-1] = frame if self.padding == "first" else self.frame()

    def step(self, kind: str) -> None:
        if kind == "begin":
            self.begin()
        elif kind == "noise":  # no stack at all
            self.stack = self.rng.integers(0, 255, (4, *FRAME), np.uint8)
        elif kind != "same":
            self.stack = np.concatenate([self.stack[1:], self.frame()[None]])


def block(sequences: list[FrameSequence], horizon: int, kinds) -> np.ndarray:
    """Return rows [T+1, L, 4, 32, 32]; the last row is repeated in the next block."""
    rows = np.zeros((horizon + 1, len(sequences), 4, *FRAME), np.uint8)
    for lane, sequence in enumerate(sequences):
        for row in range(horizon + 1):
            rows[row, lane] = sequence.stack
            if row < horizon:
                sequence.step(kinds())
    return rows


def taken(store: FrameStore | RowStore, places: np.ndarray, spec: ArraySpec = STACK) -> np.ndarray:
    target = spec.empty(len(places))
    store.take(places, target.reshape(len(places), -1).view("uint64"))
    return target


@settings(max_examples=40, deadline=None)
@given(
    horizon=st.integers(1, 6),
    lanes=st.integers(1, 2),
    num_slots=st.integers(1, 5),
    padding=st.sampled_from(["zero", "first"]),
    shares=st.sampled_from([(1, 0, 0, 0), (0.8, 0.2, 0, 0), (0.6, 0.1, 0.2, 0.1), (0, 0, 1, 0), (0.5, 0, 0, 0.5)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_row_comes_back_exactly(horizon, lanes, num_slots, padding, shares, seed):
    rng = np.random.default_rng(seed)
    size = (STACK, num_slots, horizon + 1, lanes)
    store, plain = FrameStore("observation/image", *size, Arena()), RowStore("observation/image", *size, Arena())
    sequences, newest, slot = [FrameSequence(rng, padding) for _ in range(lanes)], -1, 0
    for _ in range(3 * num_slots):
        rows = block(sequences, horizon, lambda: rng.choice(["step", "begin", "noise", "same"], p=shares))
        if newest == slot or rng.random() < 0.1:
            newest = -1  # a block that was lost, or replaced
        store.write(slot, rows, newest)
        plain.write(slot, rows, newest)
        newest, slot = slot, (slot + 1) % num_slots
        if rng.random() < 0.2:
            restored = FrameStore("observation/image", *size, Arena())
            restored.restore({name: values.copy() for name, values in store.state(num_slots).items()})
            assert restored.num_frames == store.num_frames
            store = restored
    places = np.arange(num_slots * lanes * (horizon + 1))
    assert np.array_equal(taken(store, places), taken(plain, places))


@pytest.mark.parametrize("padding", ["zero", "first"])
def test_each_step_takes_one_frame(padding):
    rng, horizon, num_slots = np.random.default_rng(0), 4, 10
    store = FrameStore("observation/image", STACK, num_slots, horizon + 1, 1, Arena())
    sequences, kinds = [FrameSequence(rng, padding)], iter(["step", "step", "begin", "step", "step"] * 100)
    for i in range(3 * num_slots):
        store.write(i % num_slots, block(sequences, horizon, lambda: next(kinds)), (i - 1) % num_slots if i else -1)
    # One frame of zeros; one for each of 4 steps in 10 blocks; up to 4 of the row before the oldest block.
    assert 1 + 40 <= store.num_frames <= 1 + 40 + 4


@pytest.mark.parametrize("options", [pytest.param({}, marks=pytest.mark.slow), {"episodic_life": True}])
def test_atari_games_take_at_most_one_frame_per_step(options):
    pytest.importorskip("ale_py")
    from srl.environments.adapters.atari import config_of

    config = config_of("ALE/Breakout-v5", options)
    assert config is not None
    lanes, rng = config.build(2), np.random.default_rng(0)
    spec, horizon, num_slots = ArraySpec((4, 84, 84), "uint8"), 16, 6
    size = (spec, num_slots, horizon + 1, 2)
    store, plain = FrameStore("observation", *size, Arena()), RowStore("observation", *size, Arena())
    (time_step,) = lanes.reset(0)
    for slot in range(num_slots):
        rows = spec.empty(horizon + 1, 2)
        for row in range(horizon + 1):
            rows[row] = time_step.observation
            if row < horizon:
                (time_step,) = lanes.step((rng.integers(0, 4, 2),))
        for each in (store, plain):
            each.write(slot, rows, slot - 1)
    lanes.close()
    places = np.arange(num_slots * 2 * (horizon + 1))
    assert np.array_equal(taken(store, places, spec), taken(plain, places, spec))
    assert store.num_frames <= num_slots * 2 * horizon + 8


def test_frames_that_are_free_are_used_again():
    rng, num_slots = np.random.default_rng(0), 4
    store = FrameStore("observation/image", STACK, num_slots, 5, 1, Arena())
    for i in range(20):
        store.write(i % num_slots, rng.integers(0, 255, (5, 1, 4, *FRAME), np.uint8), -1)
    assert store.num_frames == 1 + num_slots * 5 * 4, "they are no stacks"
    assert store.nbytes >= num_slots * 5 * STACK.nbytes, "the memory that is really used"
    sequences = [FrameSequence(rng)]
    for i in range(num_slots):
        store.write(i, block(sequences, 4, lambda: "step"), i - 1)
    assert store.num_frames == 1 + 1 + num_slots * 4


def test_only_observations_that_look_like_stacks_of_images_are_split():
    assert is_stack("observation", ArraySpec((4, 84, 84), "uint8"))
    assert is_stack("observation/camera", ArraySpec((2, 64, 64, 3), "uint8"))
    for path, shape, dtype in (
        ("observation", (3, 84, 84), "uint8"),  # colors
        ("observation", (4, 84, 84), "float32"),
        ("observation", (84, 84, 4), "uint8"),
        ("observation", (4, 8, 8), "uint8"),
        ("observation", (4, 7056), "uint8"),
        ("decision/image", (4, 84, 84), "uint8"),
    ):
        assert not is_stack(path, ArraySpec(shape, dtype))


def test_a_million_atari_decisions_take_about_7_gigabytes():
    for horizon, lanes in ((4, 4), (16, 8), (128, 8)):
        spec = spec_of(horizon, lanes, ArraySpec((4, 84, 84), "uint8"))
        assert 6.8e9 < bytes_needed(Replay(Transitions(), 32, 1_000_000), spec) < 7.5e9


@pytest.mark.parametrize("unit", [Transitions(n_step=2), Sequences(5, 1, 2)])
def test_a_memory_restacks_frames(unit):
    rng, horizon, lanes = np.random.default_rng(0), 3, 2
    stacked = spec_of(horizon, lanes, {"image": STACK, "step": ArraySpec((), "int64")})
    memory = ReplayMemory(Replay(unit, 8, 36), stacked, 0)
    assert memory.draw(0, 0.0).batch.num_steps == 0  # as during the warm-up
    sequences, shown = [FrameSequence(rng), FrameSequence(rng)], {}
    for step in range(0, 30, horizon):
        arrays = empty_block(stacked)
        arrays["acting"][...] = True
        arrays["observation/image"][...] = block(sequences, horizon, lambda: "step" if rng.random() < 0.8 else "begin")
        arrays["observation/step"][...] = np.arange(step, step + horizon + 1)[:, None] + np.array([0, 1000])
        for number, image in zip(
            arrays["observation/step"].ravel(), arrays["observation/image"].reshape(-1, 4, *FRAME), strict=True
        ):
            shown[int(number)] = image.copy()
        memory.insert(arrays, "a", step)
    for _ in range(10):
        batch: Any = memory.draw(2, 0.0).batch
        trees = [batch.observation] + ([batch.next_observation] if isinstance(unit, Transitions) else [])
        for tree in trees:
            images = tree["image"].reshape(-1, 4, *FRAME)
            for number, image in zip(tree["step"].ravel(), images, strict=True):
                assert np.array_equal(image, shown[int(number)])
    assert memory.nbytes == bytes_needed(Replay(unit, 8, 36), stacked)


def test_frames_are_recovered_and_saved(tmp_path):
    rng, horizon, sequence = np.random.default_rng(0), 3, FrameSequence(np.random.default_rng(0))
    spec, dataflow = spec_of(horizon, 1, STACK), Replay(Transitions(), 8, 12)
    plain, kept = ReplayMemory(dataflow, spec, 0), KeptFile.create("test")
    archive = ReplayArchive(tmp_path, {"policy": kept})
    arrays = empty_block(spec)
    arrays["acting"][...] = True
    for number in range(14):
        if number == 9:
            kept.close()
            kept = KeptFile.create("test")
            archive = ReplayArchive(tmp_path, {"policy": kept})
            assert archive.fill() == []
        memory = ReplayMemory(dataflow, spec, 1, arena=Arena(kept.window(0)))  # of a process that replaces the last one
        assert memory.recovered == (number > 0)
        arrays["observation"][...] = block([sequence], horizon, lambda: "step" if rng.random() < 0.8 else "begin")
        for each in (plain, memory):
            each.insert(arrays, "a", horizon * number)
        archive.write()
    one, other = (_images(each) for each in (plain, memory))
    assert len(one) == 12
    assert one == other
    assert memory._ring.stores["observation"].num_frames <= plain._ring.stores["observation"].num_frames + 3  # type: ignore
    kept.close()


def _images(memory: ReplayMemory) -> set[bytes]:
    return {image.tobytes() for _ in range(20) for image in memory.draw(1, 0.0).batch.observation[0]}  # type: ignore


def test_frames_of_another_shape_are_not_restored():
    store = FrameStore("observation/image", STACK, 2, 3, 1, Arena())
    store.write(0, np.ones((3, 1, 4, *FRAME), np.uint8), -1)
    with pytest.raises(NotResumable, match="saved frames"):
        FrameStore("observation/image", STACK, 2, 4, 1, Arena()).restore(store.state(1))
