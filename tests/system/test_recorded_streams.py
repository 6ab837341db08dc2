"""Recorded streams: the same updates again, from runs of every kind, and clear errors for what is not there."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from support.terminals import GENTLE, Terminal

import srl
from srl.datasets.recorded_streams import RecordedStream
from srl.datasets.stream_segments import SegmentFile, StreamError, read, segment_files, write
from srl.results.replay import Replayed
from srl.storage import checkpoints

TINY: dict[str, Any] = {
    "scheduler": "inline",
    "record_streams": True,
    "recipe": "none",
    "lanes": 4,
    "horizon": 8,
    "verbose": False,
}
UPDATE = 32  # decisions


def train(root: Path, env: str = "CartPole-v1", updates: int = 6, name: str = "run", **options: Any) -> srl.Run:
    return srl.train(env, root=root, name=name, steps=updates * UPDATE, **{**TINY, "hidden_sizes": (8,), **options})


def check(done: Replayed, first: int, last: int) -> None:
    """Check that these updates were made again with the same result."""
    assert [one.update for one in done.updates if one.update >= first] == list(range(first, last + 1))
    assert all(one.is_equal for one in done.updates)
    assert done.first_difference is None


def final_parameters(run: srl.Run) -> Any:
    newest = checkpoints.latest(run.path / "checkpoints")
    assert newest is not None
    return checkpoints.read(newest)[0]["policy/parameters"]


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> srl.Run:
    return train(tmp_path_factory.mktemp("runs"), updates=8)


@pytest.fixture
def copied(cartpole: srl.Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cartpole.path, tmp_path / "copy"))


def segments(run: Path) -> list[SegmentFile]:
    return segment_files(run / "streams" / "policy" / "0")


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {"memory": "lstm", "normalize_observation": True}),
        ("support.varied:Varied", {"env_args": {"observation": "camera"}, "updates": 3}),
        ("CartPole-v1", {"algo": "dqn", "learning_starts": 64}),
        pytest.param("CartPole-v1", {"algo": "ppg", "auxiliary_every": 3}, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", {"algo": "rainbow", "learning_starts": 64}, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", {"algo": "r2d2", "learning_starts": 64, "horizon": 20}, marks=pytest.mark.slow),
        pytest.param("Pendulum-v1", {"algo": "sac", "learning_starts": 64}, marks=pytest.mark.slow),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_replayed_updates_reach_the_parameters_of_the_run(tmp_path: Path, env: str, options: dict[str, Any]) -> None:
    run = train(tmp_path, env, **options)
    done = run.replay()
    check(done, 1, run.status.updates)
    np.testing.assert_array_equal(done.parameters, final_parameters(run))
    assert len(done.updates) >= 3


def test_a_range_starts_from_the_nearest_state(cartpole: srl.Run, capsys: pytest.CaptureFixture[str]) -> None:
    from srl.cli.main import main

    seen = []
    done = srl.replay_run(
        cartpole.path, from_update=3, to_update=5, on_update=lambda update, batch, trainer, result: seen.append(update)
    )
    check(done, 3, 5)
    assert seen == [1, 2, 3, 4, 5]
    assert main(["replay", str(cartpole.path), "--from-update", "4", "--to-update", "8", "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out)
    assert (report["first_difference"], report["updates"][-1]["update"]) == (None, 8)
    assert "policy_loss" in report["updates"][-1]["metrics"]
    assert report["updates"][-1]["digest"] == report["updates"][-1]["recorded"]


def test_a_replay_starts_from_a_checkpoint_where_no_state_is_recorded(tmp_path: Path) -> None:
    run = train(tmp_path, updates=6)
    srl.resume(run.path, steps=12 * UPDATE, verbose=False)
    for file in segments(run.path):
        if file.first <= 6:
            file.path.unlink()
        else:
            rewrite(file, has_state=False)
    done = run.replay()
    assert done.start.endswith(f"-step-{run.status.steps}")
    check(done, run.status.updates + 1, srl.load_run(run.path).status.updates)


def rewrite(file: SegmentFile, arrays: Any = None, has_state: bool = True, **changes: Any) -> None:
    """Replace a segment by one with other content, as an attacker would."""
    segment = read(file)
    head = msgspec.structs.replace(segment.head, has_state=has_state, **changes)
    own = segment.arrays if arrays is None else arrays
    file.path.unlink()
    state = segment.state if has_state else {}
    write(file.path.parent, file.writer, file.number, head, state, [own[one.update] for one in head.updates])


def test_a_changed_batch_is_reported_at_its_update(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from srl.cli.main import main

    (file,) = [one for one in segments(copied) if one.first <= 4 <= one.last]
    arrays = {update: dict(one) for update, one in read(file).arrays.items()}
    arrays[4]["reward"] = arrays[4]["reward"] + np.float32(1.0)
    rewrite(file, arrays)
    assert main(["replay", str(copied)]) == 1
    assert "differ from the record from update 4 on" in capsys.readouterr().out


def test_errors_name_the_updates_that_are_recorded(copied: Path) -> None:
    with pytest.raises(StreamError, match="updates 3 to 99 are not recorded without a gap; recorded are 1 to"):
        srl.replay_run(copied, from_update=3, to_update=99)
    with pytest.raises(ValueError, match="no record of policy 'polcy'; did you mean 'policy'"):
        srl.replay_run(copied, policy="polcy")
    shutil.rmtree(copied / "streams")
    with pytest.raises(StreamError, match="no recorded streams; record those of a new or a resumed run"):
        srl.replay_run(copied)


def test_a_damaged_segment_is_refused(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from srl.cli.main import main

    assert main(["verify", str(copied)]) == 0
    assert "streams/policy/0: undamaged, not signed" in capsys.readouterr().out
    path = segments(copied)[0].path
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(StreamError, match="is damaged: its content does not match"):
        srl.replay_run(copied)
    assert main(["verify", str(copied)]) == 1
    path.write_bytes(content[:100])
    with pytest.raises(StreamError, match="damaged"):
        srl.replay_run(copied)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("decision/action", lambda array: array + 7),
        ("observation", lambda array: array[..., :2]),
        ("reward", lambda array: array.astype(np.float64)),
        ("acting", lambda array: array[:-1]),
    ],
)
def test_arrays_that_the_policy_cannot_have_are_refused(copied: Path, path: str, change: Any) -> None:
    file = segments(copied)[0]
    arrays = {update: dict(one) for update, one in read(file).arrays.items()}
    arrays[file.first][path] = change(arrays[file.first][path])
    rewrite(file, arrays)
    with pytest.raises(StreamError, match=f"update {file.first} in .* does not fit the policy: .*"):
        srl.replay_run(copied)


def test_code_that_only_a_segment_names_is_not_imported(copied: Path) -> None:
    file = segments(copied)[0]
    rewrite(file, algorithm={"type": "support.gadgets:Evil", "fields": {}})
    with pytest.raises(ValueError, match=r"support.gadgets:Evil.*--trust-code"):
        srl.replay_run(copied)


def test_a_resumed_run_replaces_the_updates_that_it_makes_again(tmp_path: Path) -> None:
    run = train(tmp_path, updates=4)
    first = checkpoints.latest(run.path / "checkpoints")
    assert first is not None
    last = srl.resume(run.path, steps=8 * UPDATE, verbose=False).status.updates
    again = srl.resume(run.path, steps=10 * UPDATE, checkpoint=first, learning_rate=1e-3, verbose=False)
    assert again.status.updates >= last
    done = again.replay()
    check(done, 1, again.status.updates)
    np.testing.assert_array_equal(done.parameters, final_parameters(again))


def test_changed_options_are_part_of_the_record(tmp_path: Path) -> None:
    class Lower(srl.Callback):
        def on_update(self, row: Any) -> None:
            if row["update"] == 3:
                self.run.change("learning_rate", 1e-4)

    run = srl.train("CartPole-v1", root=tmp_path, steps=6 * UPDATE, callbacks=[Lower()], **TINY)
    rates = {one.update: one.metrics["learning_rate"] for one in run.replay().updates}
    assert rates[2] > rates[6] == 1e-4
    check(run.replay(), 1, run.status.updates)


def test_an_update_that_a_killed_trainer_has_recorded_counts_once(tmp_path: Path) -> None:
    run = train(tmp_path, updates=4)
    files = segments(run.path)
    segment = read(files[-1])
    updates = [msgspec.structs.replace(one, digest="0" * 32) for one in segment.head.updates]
    head = msgspec.structs.replace(segment.head, updates=updates)
    for file in files:  # the writer of the run becomes the second one
        file.path.rename(file.path.with_name(file.path.name.replace("0001-", "0002-", 1)))
    arrays = [segment.arrays[one.update] for one in updates]
    write(files[-1].path.parent, 1, 1, head, segment.state, arrays)  # it died before its commit
    check(run.replay(), 1, run.status.updates)


@pytest.mark.parametrize("trainers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_of_processes_in_which_an_actor_was_killed(terminal: Terminal, trainers: int) -> None:
    sizes = ("--trainers", str(trainers), "--batch", "128", "--hidden-sizes", "8")
    command = terminal.train(*GENTLE, *sizes, "--steps", "1000000", "--record-streams")
    status = command.wait(lambda status: status["updates"] >= 3, "three updates")
    (pid,) = [worker["pid"] for worker in status["workers"] if worker["name"] == "actors/0"]
    os.kill(pid, signal.SIGKILL)
    killed = command.wait(lambda status: status["restarts"] > 0, "another actor")["updates"]
    command.wait(lambda status: status["updates"] >= killed + 3, "further updates")
    command.signal(signal.SIGINT)
    command.end()
    stream = RecordedStream(terminal.root / "run" / "streams" / "policy")
    (span,) = stream.spans()
    assert span[0] == 1
    assert span[1] >= killed + 3
    done = srl.replay_run(terminal.root / "run", to_update=killed + 3)
    check(done, 1, killed + 3)


def test_histograms_show_what_actors_sent(cartpole: srl.Run, capsys: pytest.CaptureFixture[str]) -> None:
    from srl.cli.main import main

    last = cartpole.status.updates
    blocks = srl.recorded_blocks(cartpole.path).policies["policy"]
    assert (blocks.first, blocks.last, blocks.drawn, blocks.actors) == (1, last, False, {"actors/0": last})
    found = {one.name: one for one in blocks.histograms}
    assert found["reward"].edges == (1.0,)
    assert found["age"].count == found["reward"].count == blocks.decisions == cartpole.status.steps
    assert found["decision/action"].edges == (0.0, 1.0)
    assert sum(found["decision/action"].counts) == blocks.decisions
    assert "observation[3]" in found
    assert main(["replay", str(cartpole.path), "--only-blocks", "--from-update", "2", "--to-update", "3"]) == 0
    shown = capsys.readouterr().out
    assert "updates 2 to 3" in shown
    assert "decision/action" in shown
    assert main(["replay", str(cartpole.path), "--only-blocks", "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out)["policies"]["policy"]
    assert report["histograms"][0]["name"] == "age"
    with pytest.raises(StreamError, match="no update in this range; recorded are 1 to"):
        srl.recorded_blocks(cartpole.path, from_update=1000)


def test_histograms_name_the_block_of_the_first_value_that_is_not_finite(copied: Path) -> None:
    (file,) = [one for one in segments(copied) if one.first <= 3 <= one.last]
    arrays = {update: dict(one) for update, one in read(file).arrays.items()}
    arrays[3]["observation"][1, 2] = np.nan
    rewrite(file, arrays)
    (label,) = read(segments(copied)[0]).head.updates[2].samples
    text = str(srl.recorded_blocks(copied))
    assert f"1 value not finite, the first in update 3, block {label}" in text


def test_histograms_of_replay_are_those_of_drawn_decisions(tmp_path: Path) -> None:
    run = train(tmp_path, algo="dqn", learning_starts=64)
    blocks = run.blocks().policies["policy"]
    assert blocks.drawn
    assert blocks.decisions == run.status.steps
    assert {"age", "reward", "decision/action"} <= {one.name for one in blocks.histograms}
