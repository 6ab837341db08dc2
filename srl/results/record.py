"""Films of trained policies."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from srl.api.lanes import Lanes, LanesConfig
from srl.base.config import from_data
from srl.base.files import replacing
from srl.base.tree import Array
from srl.experiments.options.roles import role_patterns
from srl.results.load import load_all
from srl.storage import ROOT, run_directory
from srl.storage.saved_policies import choose_checkpoint
from srl.workers.episode_player import Player
from srl.workers.process import one_thread

NEEDED = {".mp4": ("imageio", "imageio_ffmpeg"), ".gif": ("imageio", "PIL")}
"""A film's ending -> the packages that write it."""


@dataclass(frozen=True)
class Film:
    path: Path
    frames: int
    returns: tuple[float, ...]
    """Of the episodes that ended in the film."""


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
) -> Film:
    """Film a run's policies in their environment.

    `out` ends in .mp4 or .gif; by default it is film.mp4 in the run's directory. Ends after so many episodes or frames.
    Nothing is overwritten unless the whole film could be made.
    """
    if episodes < 1 or max_frames < 1 or fps < 1:
        raise ValueError(f"episodes, max_frames and fps are at least 1; found {episodes}, {max_frames} and {fps}")
    found = run_directory.find(run, ROOT)
    path = found.path / "film.mp4" if out is None else Path(out)
    _check_format(path)
    config = found.read_config()
    source = choose_checkpoint(found, checkpoint)
    environment: LanesConfig = from_data(config["lanes"])
    policies = load_all(found, config["policies"], source, seed)
    with _without_window(), one_thread():
        lanes = environment.build_rendered()
        try:
            player = Player(
                lanes, policies, role_patterns(lanes.spec, from_data(config["options"]).agents.roles), greedy
            )
            frames = _frames(player, lanes, seed, episodes, max_frames)
            first = next(frames)  # what cannot be drawn shows itself here, before a file is touched
            count = _write(path, first, frames, fps)
        finally:
            lanes.close()
    returns = [value for played in player.results().values() for value in played.returns]
    return Film(path, count, tuple(returns))


@contextmanager
def _without_window() -> Iterator[None]:
    """Pygame and MuJoCo, which draw many environments, look for no screen and no loudspeaker."""
    wanted = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", **_off_screen()}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _off_screen() -> dict[str, str]:
    """What lets MuJoCo draw where there is no screen: by itself it looks for one first."""
    if sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        return {}
    for backend, library in {"egl": "EGL", "osmesa": "OSMesa"}.items():
        if ctypes.util.find_library(library):
            return {"MUJOCO_GL": backend}
    return {}


def _frames(player: Player, lanes: Lanes, seed: int, episodes: int, most: int) -> Iterator[Array]:
    player.begin(seed, episodes)
    for _ in range(most):
        yield lanes.render()
        if player.done:
            return
        player.step()


def _check_format(path: Path) -> None:
    needed = NEEDED.get(path.suffix.lower())
    if needed is None:
        raise ValueError(f"a film is written as {' or '.join(NEEDED)}; found {path.name!r}")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f'a {path.suffix} needs {" and ".join(missing)}, not installed here; pip install "srl[record]"'
        )


def _write(path: Path, first: Array, rest: Iterator[Array], fps: int) -> int:
    import imageio

    path.parent.mkdir(parents=True, exist_ok=True)
    # Players want even sides; rather than scale, let the encoder cut or fill no more than a pixel.
    options: dict[str, Any] = {"macro_block_size": 2} if path.suffix.lower() == ".mp4" else {"loop": 0}
    speed = {"fps": fps} if path.suffix.lower() == ".mp4" else {"duration": 1000 / fps}
    count = 0
    with replacing(path) as temporary, imageio.get_writer(str(temporary), **speed, **options) as writer:
        for frame in chain((first,), rest):
            writer.append_data(frame)
            count += 1
    return count
