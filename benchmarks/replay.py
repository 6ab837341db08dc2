"""Replay memories at 10^6 decisions: microseconds to insert a block, to draw minibatches, and to set priorities.

    .venv/bin/python benchmarks/replay.py [tree] [transitions] [prioritized] [frames] [sequences] [kept]
        [--windows 40]

Times are CPU time of one thread per call, the third best of the windows, because other programs use the machine too.
`median` is the median of the windows. Peers: ../shared/peers/offpolicy_replay.py and offpolicy_tree.py.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from srl.api.block import BlockSpec
from srl.api.dataflow import Priorities, Replay, Sequences, Transitions
from srl.base.shared_memory import KeptFile
from srl.base.tree import ArraySpec
from srl.replay.memory import ReplayMemory
from srl.replay.storage import Arena
from srl.replay.sum_tree import SumTree

SIZE = 1_000_000


def report(name: str, call: Callable[[], object], windows: int, bar: float | None = None) -> None:
    call()
    once = max(1e-7, timed(call, 3))
    repeats = max(1, int(0.02 / once))
    costs = sorted(timed(call, repeats) * 1e6 for _ in range(windows))
    limit = f"  (bar {bar:g})" if bar else ""
    print(f"{name:52} {costs[2]:9.1f} us   median {costs[windows // 2]:9.1f} us{limit}", flush=True)


def timed(call: Callable[[], object], repeats: int) -> float:
    begin = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - begin) / repeats


def half_cheetah(horizon: int, lanes: int, dtype: str = "float32") -> BlockSpec:
    return BlockSpec(horizon, lanes, ArraySpec((17,), dtype), {"action": ArraySpec((6,), "float32")})


def random_block(spec: BlockSpec, rng: np.random.Generator) -> dict[str, np.ndarray]:
    arrays = {path: kind.empty(spec.rows, spec.lanes) for path, kind in spec.arrays()}
    arrays["acting"][...] = True
    arrays["truncated"][...] = rng.random(arrays["truncated"].shape) < 0.001
    for array in arrays.values():
        if array.dtype.kind == "f":
            array[...] = rng.standard_normal(array.shape)
        elif array.dtype == np.uint8:
            array[...] = rng.integers(0, 255, array.shape, np.uint8)
    return arrays


def filled(
    dataflow: Replay, spec: BlockSpec, arrays: dict[str, np.ndarray], arena: Arena | None = None
) -> ReplayMemory:
    memory = ReplayMemory(dataflow, spec, 0, arena=arena)
    for step in range(0, dataflow.capacity // spec.lanes, spec.horizon):
        memory.insert(arrays, "track", step)
    return memory


def bench_tree(windows: int) -> None:
    rng = np.random.default_rng(0)
    tree = SumTree(SIZE)
    tree.set_range(0, rng.random(SIZE) ** 0.6)
    leaves, values = np.zeros(256, np.int64), np.zeros(256)
    spread = [(rng.random(256), rng.random(256)) for _ in range(64)]
    turn = iter(range(1 << 60))

    def draw() -> None:
        tree.draw(spread[next(turn) % 64][0], 256, leaves, values)

    def draw_and_set() -> None:
        uniform, new = spread[next(turn) % 64]
        tree.draw(uniform, 256, leaves, values)
        tree.set(leaves, new)

    report("tree, 10^6 leaves: draw 256", draw, windows)
    report("tree, 10^6 leaves: draw 256 and set 256", draw_and_set, windows, 30)


def bench_transitions(windows: int) -> None:
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        spec = half_cheetah(32, 32, dtype)
        arrays = random_block(spec, rng)
        memory = filled(Replay(Transitions(3), 256, SIZE), spec, arrays)
        report(f"HalfCheetah {dtype}, n=3: draw 1 x 256", lambda memory=memory: memory.draw(1, 0.0), windows, 75)
        report(f"HalfCheetah {dtype}, n=3: draw 32 x 256", lambda memory=memory: memory.draw(32, 0.0), windows)
        insert = lambda memory=memory, arrays=arrays: memory.insert(arrays, "track", 0)  # noqa: E731
        report(f"HalfCheetah {dtype}: insert 32 x 32 rows", insert, windows)
    spec = half_cheetah(8, 1)
    arrays = random_block(spec, rng)
    memory = filled(Replay(Transitions(1), 256, 100_000), spec, arrays)
    report("HalfCheetah: insert 8 x 1 rows", lambda: memory.insert(arrays, "track", 0), windows)
    for size in (10_000, 100_000, 1_000_000):
        memory = filled(
            Replay(Transitions(1), 256, size), half_cheetah(32, 32), random_block(half_cheetah(32, 32), rng)
        )
        report(f"HalfCheetah, n=1, {size:9,} decisions: draw 1 x 256", lambda m=memory: m.draw(1, 0.0), windows)


def bench_prioritized(windows: int) -> None:
    rng = np.random.default_rng(0)
    spec = half_cheetah(32, 32)
    arrays = random_block(spec, rng)
    memory = filled(Replay(Transitions(3), 256, SIZE, priorities=Priorities()), spec, arrays)
    errors = rng.random((64, 1, 256), np.float32)
    turn = iter(range(1 << 60))

    def draw_and_feed_back() -> None:
        memory.feedback(memory.draw(1, 0.5), errors[next(turn) % 64])

    for _ in range(4000):
        draw_and_feed_back()
    report("prioritized, n=3: draw 1 x 256 and feedback", draw_and_feed_back, windows, 100)
    report("prioritized: insert 32 x 32 rows", lambda: memory.insert(arrays, "track", 0), windows)


def bench_kept(windows: int) -> None:
    """Memory of the process against memory that outlives it, which has no huge pages if the kernel offers none."""
    rng = np.random.default_rng(0)
    frames = BlockSpec(32, 8, ArraySpec((84, 84), "uint8"), {"action": ArraySpec((), "int64")})
    for name, spec, size, batch in (
        ("HalfCheetah, 10^6", half_cheetah(32, 32), SIZE, 256),
        ("single frames, 10^5", frames, SIZE // 10, 32),
    ):
        arrays = random_block(spec, rng)
        file = KeptFile.create("benchmark")
        for kind, arena in (("own memory", Arena()), ("kept", Arena(file.window(0)))):
            memory = filled(Replay(Transitions(3), batch, size), spec, arrays, arena)
            report(f"{name}, {kind}: draw 1 x {batch}", lambda m=memory: m.draw(1, 0.0), windows)
            report(f"{name}, {kind}: insert", lambda m=memory, a=arrays: m.insert(a, "track", 0), windows)
            del memory
        file.close()


def atari(horizon: int, lanes: int) -> BlockSpec:
    return BlockSpec(horizon, lanes, ArraySpec((4, 84, 84), "uint8"), {"action": ArraySpec((), "int64")})


def bench_frames(windows: int) -> None:
    """Stacks of 4 Atari frames: blocks of 8 lanes x 16 steps, episodes of 1,000 steps, which start with padding."""
    rng = np.random.default_rng(0)
    spec = atari(16, 8)
    arrays = random_block(spec, rng)
    source = rng.integers(0, 255, (1 << 10, spec.lanes, 84, 84), np.uint8)
    stacks = arrays["observation"]
    memory = ReplayMemory(Replay(Transitions(1), 32, SIZE), spec, 0)
    number = 0
    for step in range(0, SIZE // spec.lanes + 1, spec.horizon):
        stacks[0] = stacks[-1]
        for before, row in pairwise(stacks):
            number += 1
            row[:, :-1] = before[:, 1:] if number % 1000 else 0
            row[:, -1] = source[number % len(source)]
        memory.insert(arrays, "track", step)
    print(f"{memory.size:,} decisions of 4 x 84 x 84 bytes: {memory.nbytes / 1e9:.2f} GB")
    print(f"resident: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9:.2f} GB")
    report("Atari, stacks of 4, n=1: draw 1 x 32", lambda: memory.draw(1, 0.0), windows, 160)
    report("Atari, stacks of 4: insert 16 x 8 rows", lambda: memory.insert(arrays, "track", 0), windows)


def bench_sequences(windows: int) -> None:
    """R2D2's sequences (burn-in 40, length 80, every 40 steps), with HalfCheetah's observations and an LSTM of 512."""
    rng = np.random.default_rng(0)
    recurrent = {"action": ArraySpec((6,), "float32"), "state": ArraySpec((1024,), "float32")}
    spec = BlockSpec(40, 32, ArraySpec((17,), "float32"), recurrent)
    arrays = random_block(spec, rng)
    for priorities in (None, Priorities()):
        memory = filled(Replay(Sequences(80, 40, 40), 64, SIZE, priorities=priorities), spec, arrays)
        kind = "uniform" if priorities is None else "prioritized"
        print(f"{memory.size:,} decisions, {memory.num_drawable:,} sequences: {memory.nbytes / 1e9:.2f} GB")
        report(f"sequences of 120 rows, {kind}: draw 1 x 64", lambda memory=memory: memory.draw(1, 0.0), windows)


BENCHMARKS = {
    "tree": bench_tree,
    "transitions": bench_transitions,
    "prioritized": bench_prioritized,
    "kept": bench_kept,
    "sequences": bench_sequences,
    "frames": bench_frames,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--windows", type=int, default=40)
    arguments = parser.parse_args()
    for name in arguments.names or BENCHMARKS:
        BENCHMARKS[name](arguments.windows)
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


if __name__ == "__main__":
    main()
