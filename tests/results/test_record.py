"""Videos: their content and length, and errors for environments that cannot be rendered."""

from __future__ import annotations

import os
import subprocess
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest
from support.trained_runs import untrained
from support.trees import leaf

import srl
from srl.cli.main import main
from srl.environments.adapters.vector import VectorConfig
from srl.environments.registry import lanes_config
from srl.results.record import write_video

imageio = pytest.importorskip("imageio.v3")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # imageio-ffmpeg's own pipes
@pytest.mark.parametrize("kind", ["mp4", "gif"])
def test_a_video_has_the_reported_frames(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pygame")
    pytest.importorskip("imageio_ffmpeg")
    run = untrained(tmp_path, "CartPole-v1")
    out = tmp_path / "videos" / f"video.{kind}"
    assert main(["record", str(run.path), "--out", str(out), "--max-frames", "12", "--episodes", "9"]) == 0
    assert "12 frames" in capsys.readouterr().out
    frames = np.stack(list(imageio.imiter(out)))
    assert 10 <= frames.shape[0] <= 13  # a video may merge equal frames
    assert frames.shape[1:3] == (400, 600)
    assert frames.std() > 0
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_a_frame_with_odd_sides_becomes_even_without_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    frame = np.arange(75 * 51 * 3).reshape(75, 51, 3).astype(np.uint8)
    assert write_video(tmp_path / "odd.mp4", frame, iter([frame]), 10) == 2
    assert capfd.readouterr() == ("", "")
    described = subprocess.run([ffmpeg.get_ffmpeg_exe(), "-i", tmp_path / "odd.mp4"], capture_output=True, text=True)
    assert " 52x76 " in described.stderr.replace(",", " ")


def test_a_video_ends_with_its_episodes(tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    run = untrained(tmp_path, "CartPole-v1")
    video = srl.record(run.path, tmp_path / "a.gif", episodes=1)
    assert video.frames == video.returns[0] + 1  # with the first frame
    assert len(video.returns) == 1


def test_a_video_of_a_policy_that_searches_has_the_given_number_of_simulations(tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    run = untrained(tmp_path, "CartPole-v1", algo="muzero")
    command = ["record", str(run.path), "--out", str(tmp_path / "a.gif"), "--max-frames", "3", "--simulations"]
    assert main([*command, "0"]) == 0
    with pytest.raises(ValueError, match="simulations must be 0 or more"):
        srl.record(run.path, tmp_path / "b.gif", max_frames=3, simulations=-1)


def test_the_error_for_an_environment_that_cannot_render_names_it_and_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained(tmp_path, "srl.testing.environments:Tracer")
    there = tmp_path / "video.mp4"
    there.write_text("precious")
    assert main(["record", str(run.path), "--out", str(there)]) == 2
    message = capsys.readouterr().err
    assert "srl.testing.environments:Tracer" in message
    assert "cannot" in message
    assert there.read_text() == "precious"
    assert main(["record", str(run.path), "--out", "video.avi"]) == 2
    assert "must end in .mp4 or .gif" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "installed", "expected"),
    [
        ({}, ["EGL", "OSMesa"], "egl"),
        ({}, ["OSMesa"], "osmesa"),
        ({}, [], None),
        ({"DISPLAY": ":0"}, ["EGL"], None),
        ({"MUJOCO_GL": "osmesa"}, ["EGL"], "osmesa"),
    ],
)
def test_mujoco_renders_without_a_screen_where_possible(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    installed: list[str],
    expected: str | None,
) -> None:
    """By default it looks for a screen and fails."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: name if name in installed else None)
    seen: list[str | None] = []
    monkeypatch.setattr(VectorConfig, "build_rendered", lambda _: seen.append(os.environ.get("MUJOCO_GL")))
    with pytest.raises(AttributeError):  # there are no lanes
        srl.record(untrained(tmp_path, "CartPole-v1").path, tmp_path / "a.gif")
    assert seen == [expected]
    assert os.environ.get("MUJOCO_GL") == given.get("MUJOCO_GL")


@pytest.mark.slow
def test_a_mujoco_task_is_recorded(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    if not (os.environ.get("DISPLAY") or find_library("EGL") or find_library("OSMesa")):
        pytest.skip("this machine has no library with which MuJoCo could render")
    video = srl.record(untrained(tmp_path, "HalfCheetah-v5").path, tmp_path / "a.gif", max_frames=3)
    frames = np.stack(list(imageio.imiter(video.path)))
    assert (video.frames, frames.shape[-1]) == (3, 3)
    assert frames.std() > 20


def test_a_rendered_atari_game_has_the_observations_of_training() -> None:
    pytest.importorskip("ale_py")
    config = lanes_config("BreakoutNoFrameskip-v4", noop_max=0)
    seen, rendered = config.build(1), config.build_rendered()
    assert rendered.spec.teams == seen.spec.teams
    first, second = seen.reset(0)[0], rendered.reset(0)[0]
    for step in range(10):
        difference = np.abs(leaf(first.observation).astype(int) - leaf(second.observation).astype(int))
        assert difference.mean() < 0.5, step  # the ball may be a frame ahead
        assert first.reward == second.reward
        action = np.array([step % 4])
        first, second = seen.step((action,))[0], rendered.step((action,))[0]
    assert rendered.render().shape == (210, 160, 3)
    seen.close()
    rendered.close()
