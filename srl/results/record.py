"""Videos of trained policies."""

from __future__ import annotations

import base64
import ctypes.util
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import Lanes
from srl.base.config import TrustCode
from srl.base.files import replacing
from srl.base.tree import Array
from srl.experiments.options.roles import role_patterns
from srl.results.load import load_run
from srl.storage import ROOT, run_directory
from srl.workers.episode_player import EpisodePlayer
from srl.workers.process import one_thread

NEEDED = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio", "PIL")}
"""Suffix of a video -> packages needed to write it."""


@dataclass(frozen=True)
class Video:
    path: Path
    frames: int
    returns: tuple[float, ...]  # returns of the episodes that ended in the video

    def _repr_html_(self) -> str:
        """Return the video itself, for a notebook that shows it inline."""
        data = base64.b64encode(self.path.read_bytes()).decode()
        if self.path.suffix == ".gif":
            return f'<img src="data:image/gif;base64,{data}">'
        return f'<video controls loop src="data:video/mp4;base64,{data}"></video>'


def record(
    run: str | Path,
    out: str | Path | None = None,
    *,
    episodes: int = 1,
    max_frames: int = 3000,
    fps: int = 30,
    greedy: bool = True,
    seed: int = 0,
    checkpoint: str | int | Path = "latest",
    env: str | Callable[..., Any] = "",
    env_args: Mapping[str, Any] | None = None,
    simulations: int | None = None,
    trust_code: TrustCode = False,
) -> Video:
    """Record a video of a run's policies in their environment.

    `out` ends in .mp4 or .gif; the default is video.mp4 in the run's directory. The video ends after `episodes`
    episodes or `max_frames` frames. An existing file is replaced only when the new one is complete. `simulations`
    and `trust_code` are as for :func:`srl.load`, `env` and `env_args` as for :func:`srl.evaluate`.
    """
    if episodes < 1 or max_frames < 1 or fps < 1:
        raise ValueError(f"episodes, max_frames and fps must be at least 1; found {episodes}, {max_frames} and {fps}")
    path = run_directory.find(run, ROOT).path / "video.mp4" if out is None else Path(out)
    _check_format(path)
    loaded = load_run(run, checkpoint, seed, trust_code, env, env_args, simulations)
    with _without_window(), one_thread():
        lanes = loaded.environment.build_rendered()
        try:
            player = EpisodePlayer(lanes, loaded.policies, role_patterns(lanes.spec, loaded.roles), greedy)
            frames = _frames(player, lanes, seed, episodes, max_frames)
            first = next(frames)  # rendering errors are raised here, before a file is touched
            path.parent.mkdir(parents=True, exist_ok=True)
            count = write_video(path, first, frames, fps)
        finally:
            lanes.close()
    returns = [value for played in player.results().values() for value in played.returns]
    return Video(path, count, tuple(returns))


@contextmanager
def _without_window() -> Iterator[None]:
    """Keep Pygame and MuJoCo, which render many environments, from opening a screen or an audio device."""
    wanted = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", **_offscreen_setting()}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _offscreen_setting() -> dict[str, str]:
    """Return the environment variable that makes MuJoCo render without a screen, if there is none."""
    if sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        return {}
    for backend, library in {"egl": "EGL", "osmesa": "OSMesa"}.items():
        if ctypes.util.find_library(library):
            return {"MUJOCO_GL": backend}
    return {}


def _frames(player: EpisodePlayer, lanes: Lanes, seed: int, episodes: int, max_frames: int) -> Iterator[Array]:
    player.begin(seed, episodes)
    for _ in range(max_frames):
        yield lanes.render()
        if player.done:
            return
        player.step()


def _check_format(path: Path) -> None:
    needed = NEEDED.get(path.suffix.lower())
    if needed is None:
        raise ValueError(f"a video must end in {' or '.join(NEEDED)}; found {path.name!r}")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f'writing {path.suffix} needs {" and ".join(missing)}, not installed: run pip install "srl-rl[record]"'
        )


def write_video(path: Path, first: Array, rest: Iterator[Array], fps: int) -> int:
    """Write frames [height, width, 3] and return their number."""
    import imageio

    path.parent.mkdir(parents=True, exist_ok=True)
    video = path.suffix.lower() == ".mp4"
    options: dict[str, Any] = {"macro_block_size": 2} if video else {"loop": 0}
    speed = {"fps": fps} if video else {"duration": 1000 / fps}
    count = 0
    with replacing(path) as temporary, imageio.get_writer(str(temporary), **speed, **options) as writer:
        for frame in chain((first,), rest):
            writer.append_data(_even(frame) if video else frame)
            count += 1
    return count


def _even(frame: Array) -> Array:
    """Repeat the last row and column of a frame if necessary: video players require even side lengths."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
