"""Replay on disk: blocks are written once, a damaged or missing file costs its blocks, a killed writer nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from replay.reference import Source, spec_of
from replay.test_memory import flow

from srl.api.dataflow import Priorities
from srl.base.shared_memory import KeptFile
from srl.base.tree import ArraySpec, leaves
from srl.replay import saved
from srl.replay.kernels import TERMINATED, TRUNCATED
from srl.replay.memory import ReplayMemory
from srl.replay.saved import ReplayArchive
from srl.replay.storage import Arena

FLAT = spec_of(3, 2)
SPEC = spec_of(3, 2, {"own": ArraySpec((2,), "float32"), "camera": ArraySpec((2, 3), "uint8")})
FLOW = flow(24, n_step=3, priorities=Priorities())  # 4 blocks


def nested(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a block whose observations are a Dict."""
    seen = arrays["observation"]
    camera = np.broadcast_to(seen[..., :1, None] % 251, (*seen.shape[:2], 2, 3)).astype(np.uint8)
    rest = {path: array for path, array in arrays.items() if path != "observation"}
    return {**rest, "observation/own": seen, "observation/camera": camera}


class Run:
    """A memory that is filled and saved."""

    def __init__(self, root: Path) -> None:
        self.file = KeptFile.create("test")
        self.archive = ReplayArchive(root, {"policy": self.file})
        self.problems = self.archive.fill()
        self.source = Source(FLAT, np.random.default_rng(0), 0, 0.2)

    def open(self) -> ReplayMemory:
        self.memory = ReplayMemory(FLOW, SPEC, 5, arena=Arena(self.file.window(0)))
        return self.memory

    def close(self) -> None:
        self.file.close()
        self.__dict__.clear()  # mappings hold descriptors

    def collect(self, num_blocks: int) -> None:
        rng = np.random.default_rng(1)
        for _ in range(num_blocks):
            arrays, step = self.source.block()
            self.memory.insert(nested(arrays), "a", step)
            drawn = self.memory.draw(1, 0.5)
            self.memory.feedback(drawn, rng.random((1, 8)))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    run.open()
    yield run
    run.close()


@pytest.fixture
def later(tmp_path: Path) -> Iterator[list[Run]]:
    """A list of later runs, to be closed."""
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.close()


def files(root: Path) -> dict[str, int]:
    """Return the segments of blocks, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in root.rglob("*-blocks-*")}


def assert_equal_draws(one: ReplayMemory, other: ReplayMemory) -> None:
    for _ in range(5):
        for (path, left), (_, right) in zip(*(leaves(vars(m.draw(2, 0.5).batch)) for m in (one, other)), strict=True):
            assert path == "num_decisions" or np.array_equal(left, right), path


def test_a_later_run_continues_with_the_same_memory(run: Run, later: list[Run], tmp_path: Path) -> None:
    for count in (1, 2, 0, 4):
        run.collect(count)
        run.archive.write()
    later.append(Run(tmp_path))
    memory = later[0].open()
    assert later[0].problems == []
    assert (memory.recovered, memory.size, memory.collected) == (True, run.memory.size, run.memory.collected)
    assert_equal_draws(run.memory, memory)
    flags = memory._ring.flags
    ends = flags & (TERMINATED | TRUNCATED)
    assert {TERMINATED, TRUNCATED} <= set(ends.ravel().tolist()), "terminations and time-outs"


def test_blocks_are_written_once_and_removed_when_all_of_a_segment_are_replaced(run: Run, tmp_path: Path) -> None:
    run.collect(2)
    run.archive.write()
    before = files(tmp_path)
    run.collect(3)
    run.archive.write()
    after = files(tmp_path)
    assert {name.partition("-")[2] for name in after} == {"blocks-1-2.safetensors", "blocks-3-5.safetensors"}
    assert before.items() <= after.items()
    run.collect(1)
    run.archive.write()
    assert {name.partition("-")[2] for name in files(tmp_path)} == {"blocks-3-5.safetensors", "blocks-6-6.safetensors"}
    assert len(list(tmp_path.rglob("*-state-*"))) == 1


def test_tracks_of_the_last_run_do_not_continue(run: Run, later: list[Run], tmp_path: Path) -> None:
    run.collect(1)
    run.archive.write()
    later.append(Run(tmp_path))
    later[0].open()
    later[0].source.first_step = 3
    later[0].collect(1)
    assert (later[0].memory._ring.following == -1).all()


def test_verification_names_damaged_files(run: Run, tmp_path: Path) -> None:
    run.collect(3)
    run.archive.write()
    shards = saved.saved_shards(tmp_path)
    assert {name: shard.problems() for name, shard in shards.items()} == {f"{tmp_path.name}/policy/0": []}
    segment = next(tmp_path.glob("policy/0/*-blocks-*"))
    segment.write_bytes(b"x" + segment.read_bytes()[1:])
    (problem,) = next(iter(shards.values())).problems()
    assert problem == f"{segment.name}: its SHA-256 differs from the manifest's"


def test_a_damaged_segment_costs_its_blocks(run: Run, later: list[Run], tmp_path: Path) -> None:
    for _ in range(3):
        run.collect(1)
        run.archive.write()
    segment = next(path for path in tmp_path.rglob("*-blocks-2-2*"))
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    later.append(Run(tmp_path))
    memory = later[0].open()
    assert len(later[0].problems) == 1
    assert "SHA-256" in later[0].problems[0]
    assert memory._ring.generation.tolist() == [1, 0, 3, 0]
    later[0].collect(5)
    assert memory._ring.generation.tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"layout": "[]", "identity": 1}', b"\xff"])
def test_a_damaged_manifest_costs_the_memory_and_says_so(
    run: Run, later: list[Run], tmp_path: Path, content: bytes
) -> None:
    run.collect(2)
    run.archive.write()
    (manifest,) = tmp_path.rglob(saved.MANIFEST)
    manifest.write_bytes(content)
    later.append(Run(tmp_path))
    assert "cannot be used" in later[0].problems[0]
    assert not later[0].open().recovered
    later[0].collect(2)
    later[0].archive.write()
    later.append(Run(tmp_path))
    assert (later[1].problems, later[1].open().size) == ([], later[0].memory.size)


def test_a_writer_that_fails_at_any_file_leaves_what_was_saved(
    run: Run, later: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.collect(3)
    run.archive.write()
    size = run.memory.size
    run.collect(1)
    for num_files in range(3):
        left = [num_files]

        def write(path: Path, content: bytes, left: list[int] = left) -> None:
            if not left[0]:
                path.write_bytes(content[: len(content) // 2])
                raise OSError(28, "No space left on device")
            left[0] -= 1
            path.write_bytes(content)

        with monkeypatch.context() as patched:
            patched.setattr(saved, "write_synced", write)
            patched.setattr("srl.base.files.write_synced", write)
            with pytest.raises(OSError, match="No space"):
                run.archive.write()
        later.append(Run(tmp_path))
        assert (later[-1].problems, later[-1].open().size) == ([], size)
    run.archive.write()
    later.append(Run(tmp_path))
    assert later[-1].open().size == run.memory.size


def test_a_block_that_is_replaced_while_it_is_copied_is_left_out(
    run: Run, later: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.collect(5)
    pooled = saved._Arrays.pooled

    def replace(self, rows):
        if run.memory.collected and run.memory._ring.num_inserted == 5:
            run.collect(1)
        return pooled(self, rows)

    monkeypatch.setattr(saved._Arrays, "pooled", replace)
    run.archive.write()
    later.append(Run(tmp_path))
    assert later[0].open()._ring.generation.tolist() == [5, 0, 3, 4]
    run.archive.write()
    later.append(Run(tmp_path))
    assert later[1].open()._ring.generation.tolist() == [5, 6, 3, 4]


def test_a_memory_that_started_over_replaces_what_was_saved(run: Run, later: list[Run], tmp_path: Path) -> None:
    run.collect(3)
    run.archive.write()
    run.file.window(0).clear()
    run.open()
    run.collect(1)
    run.archive.write()
    assert len(files(tmp_path)) == 1
    later.append(Run(tmp_path))
    assert later[0].open()._ring.generation.tolist() == [1, 0, 0, 0]


def test_rows_of_a_pool_are_saved_with_the_slots_that_refer_to_them(tmp_path: Path) -> None:
    def arrays(file: KeptFile) -> dict[str, np.ndarray]:
        memory = file.window(0)
        shapes = {"slot/generation": ((2,), "int64"), "slot/track": ((2,), "uint64"), "slot/x": ((2, 3), "int32")}
        found = {name: memory.array(name, *kind) for name, kind in shapes.items()}
        found["pool/x"] = memory.array("pool/x", (10, 4), "float32")
        memory.seal("")
        return found

    first, second = KeptFile.create("one"), KeptFile.create("other")
    one = arrays(first)
    one["slot/x"][:] = [[1, 2, 2], [2, 5, 5]]
    one["pool/x"][:] = np.arange(40).reshape(10, 4)
    one["slot/generation"][:] = 1, 2
    ReplayArchive(tmp_path, {"policy": first}).write()
    one["slot/x"][0], one["slot/generation"][0] = [1, 7, 7], 3  # number 1 is used again, for another row
    one["pool/x"][1] = -1
    ReplayArchive(tmp_path, {"policy": first}).write()
    assert ReplayArchive(tmp_path, {"policy": second}).fill() == []
    other = arrays(second)
    assert (other["slot/x"] == one["slot/x"]).all()
    assert (other["pool/x"][[1, 2, 5, 7]] == one["pool/x"][[1, 2, 5, 7]]).all()
    assert not other["pool/x"][[0, 3, 4, 6, 8, 9]].any(), "rows that no slot refers to are not saved"
    first.close()
    second.close()
