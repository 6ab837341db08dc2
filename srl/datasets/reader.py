"""Reading data sets in Minari's format: a folder with `main_data.hdf5` and `metadata.json`."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.spaces import Dict, Space
from srl.base.config import parse_json
from srl.base.files import read_regular
from srl.base.tree import Array, Tree, leaves
from srl.datasets.spaces import action_difference, difference, from_text
from srl.environments.conversion import observation_encoder

DATA, METADATA, FOLDER = "main_data.hdf5", "metadata.json", "data"
MAX_METADATA_BYTES = 64 << 20
CACHE = "MINARI_DATASETS_PATH"
"""Environment variable with the directory of Minari's data sets; by default ~/.minari/datasets."""


class DatasetError(ValueError):
    """A data set cannot be found, read or used; the message says what to do."""


def h5py_module() -> Any:
    """Return h5py. Raises ImportError that says how to install it."""
    try:
        import h5py
    except ImportError as error:
        raise ImportError("data sets need h5py: pip install 'srl-rl[offline]'") from error
    return h5py


@dataclass(frozen=True)
class Episode:
    """One episode of n steps, in the arrays of an environment's spaces."""

    observation: Tree  # [n+1, ...]
    action: Tree  # [n, ...]
    reward: Array  # [n] float32
    terminated: Array  # [n] bool
    truncated: Array  # [n] bool

    @property
    def num_steps(self) -> int:
        return len(self.reward)


def locate(name: str | Path) -> Path:
    """Return the folder with the files of a data set: at a path, or by name in Minari's directory. Raises
    DatasetError if there is none."""
    cache = Path(os.environ.get(CACHE) or Path.home() / ".minari" / "datasets")
    candidates = [Path(name).expanduser(), cache / name]
    for folder in candidates:
        for found in (folder / FOLDER, folder):
            if (found / METADATA).is_file():
                return found.resolve()
    raise DatasetError(
        f"no data set {str(name)!r}: neither {candidates[0]} nor {candidates[1]} has {METADATA}. Record one with `srl "
        "collect RUN --out DATASET`, or get one with `minari download`"
    )


class Dataset:
    """A data set. Opening it reads only its metadata."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with _explained(folder):
            data = parse_json(read_regular(folder / METADATA, MAX_METADATA_BYTES), str(folder / METADATA))
            if not isinstance(data, dict):
                raise ValueError(f"{METADATA} has no entries")
            self.num_episodes, self.num_steps = int(data["total_episodes"]), int(data["total_steps"])
        kind = data.get("data_format", "hdf5")
        if kind != "hdf5":
            raise DatasetError(f"{folder} has the format {kind!r}; only hdf5 is supported: convert it with Minari")
        self._spaces = {role: data.get(f"{role}_space") for role in ("observation", "action")}
        if self.num_episodes < 1 or self.num_steps < 1:
            raise DatasetError(f"{folder} is empty: {self.num_episodes} episodes, {self.num_steps} steps")

    @property
    def num_rows(self) -> int:
        """Number of observations: one more than steps in each episode."""
        return self.num_steps + self.num_episodes

    def check(self, observation: Space, action: Space) -> None:
        """Raise DatasetError unless the data set has these spaces and its first and last episode can be read."""
        compared = (("observation", observation, difference), ("action", action, action_difference))
        for role, expected, compare in compared:
            if (text := self._spaces[role]) is None:
                continue  # an old data set, which has only the name of its environment
            with _explained(self.folder):
                found = from_text(str(text), role)
            if different := compare(found, expected):
                raise DatasetError(
                    f"{self.folder} belongs to another environment: its {role} space has {different}, as the "
                    "environment of this run has it"
                )
        for _ in self.episodes(observation, action, {0, self.num_episodes - 1}):
            pass

    def episodes(self, observation: Space, action: Space, chosen: set[int] | None = None) -> Iterator[Episode]:
        """Yield all episodes, or the chosen ones, in the arrays of an environment's spaces. Raises DatasetError for
        an episode that cannot be read."""
        encoders = observation_encoder(observation), observation_encoder(action)
        with _explained(self.folder), h5py_module().File(self.folder / DATA, "r") as file:
            for index in sorted(chosen) if chosen is not None else range(self.num_episodes):
                try:
                    yield _episode(file[f"episode_{index}"], observation, action, encoders)
                except (KeyError, OSError, TypeError, ValueError, AttributeError) as error:
                    raise DatasetError(f"episode {index} of {self.folder} is damaged: {error}") from error


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Raise errors in a file as DatasetError."""
    try:
        yield
    except DatasetError:
        raise
    except (KeyError, OSError, ValueError, RuntimeError) as error:
        raise DatasetError(f"{folder} is not a data set of Minari, or is damaged: {error}") from error


def _episode(group: Any, observation: Space, action: Space, encoders: tuple[Callable[..., Tree], ...]) -> Episode:
    reward = np.asarray(group["rewards"][()], np.float32)
    count = len(reward)
    seen = encoders[0](_tree(group["observations"], observation), count + 1)
    done = encoders[1](_tree(group["actions"], action), count)
    terminated, truncated = (np.asarray(group[name][()], bool) for name in ("terminations", "truncations"))
    if count == 0 or terminated.shape != (count,) or truncated.shape != (count,):
        raise ValueError(f"{count} rewards, {len(terminated)} terminations, {len(truncated)} truncations")
    for name, tree in (("observations", seen), ("actions", done), ("rewards", reward)):
        if any(leaf.dtype.kind == "f" and not np.isfinite(leaf).all() for _, leaf in leaves(tree)):
            raise ValueError(f"{name} have numbers that are not finite")
    return Episode(seen, done, reward, terminated, truncated)


def _tree(group: Any, space: Space) -> Any:
    """Return the native arrays of a space: nested dictionaries or tuples, or one array."""
    if isinstance(space, Dict):
        if space.is_tuple:
            return tuple(_tree(group[f"_index_{i}"], space.items[str(i)]) for i in range(len(space.items)))
        return {name: _tree(group[name], item) for name, item in space.items.items()}
    shape = tuple(getattr(space, "shape", ()))
    if len(shape) >= 2 and len(group.shape) < len(shape) + 1 and (group.dtype == np.uint8 or group.dtype == object):
        return np.stack([_jpeg(frame) for frame in group[()]])
    return np.asarray(group[()])


def _jpeg(frame: Array) -> Array:
    """Return the pixels of an image that Minari compressed."""
    from PIL import Image

    with Image.open(io.BytesIO(np.asarray(frame, np.uint8).tobytes()), formats=("JPEG",)) as image:
        return np.array(image, np.uint8)
