"""Writing data sets in Minari's format, without Minari."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.spaces import Dict, Space
from srl.base.files import write_whole
from srl.base.tree import Array, leaves
from srl.datasets.reader import DATA, FOLDER, METADATA, DatasetError, Episode, h5py_module
from srl.datasets.spaces import to_text
from srl.environments.conversion import action_decoder, observation_leaves

MINARI_VERSION = "0.5.0"
"""Version of Minari that introduced this format: later ones read it, too."""
NAME = re.compile(r"[-_\w]+?-v\d+")


class DatasetWriter:
    """Writer of a new data set in the folder `data` of a directory, which Minari finds by the directory's name if it
    is in Minari's own directory. The metadata is written by `close`: without it, there is no data set."""

    def __init__(self, directory: Path, observation: Space, action: Space, description: Mapping[str, Any]) -> None:
        """`description` has further entries of the metadata."""
        self._h5py = h5py_module()
        self.folder = directory.expanduser() / FOLDER
        if (self.folder / METADATA).exists():
            raise DatasetError(f"{directory} is a data set already; choose another --out, or remove it")
        if not NAME.fullmatch(directory.name):
            raise DatasetError(
                f"a data set is named NAME-vNUMBER, such as cartpole-v0, so that Minari accepts it; found "
                f"{directory.name!r}"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        self._spaces = observation, action
        self._decode = action_decoder(action)
        self._description = {"dataset_id": directory.name, **description}
        self._file = self._h5py.File(self.folder / DATA, "w", track_order=True)
        self.num_episodes = self.num_steps = 0

    def add(self, episode: Episode) -> None:
        group = self._file.create_group(f"episode_{self.num_episodes}")
        group.attrs["id"], group.attrs["total_steps"] = self.num_episodes, episode.num_steps
        observation, action = self._spaces
        _write(group, "observations", _native(episode.observation, observation), observation)
        _write(group, "actions", self._decode(episode.action), action)
        for name, array in (
            ("rewards", episode.reward.astype(np.float64)),
            ("terminations", episode.terminated),
            ("truncations", episode.truncated),
        ):
            _write(group, name, array, None)
        self.num_episodes += 1
        self.num_steps += episode.num_steps

    def add_all(self, episodes: Iterable[Episode]) -> None:
        for episode in episodes:
            self.add(episode)

    def close(self) -> None:
        """Complete the data set. One without episodes is removed."""
        self._file.close()
        if self.num_episodes == 0:
            (self.folder / DATA).unlink()
            raise DatasetError(f"{self.folder} would have no episode")
        observation, action = self._spaces
        metadata = {
            "total_episodes": self.num_episodes,
            "total_steps": self.num_steps,
            "data_format": "hdf5",
            "jpeg_encoding": False,
            "observation_space": to_text(observation),
            "action_space": to_text(action),
            "minari_version": MINARI_VERSION,
            "dataset_size": round((self.folder / DATA).stat().st_size / 1e6, 1),
            **self._description,
        }
        write_whole(self.folder / METADATA, (json.dumps(metadata, indent=2) + "\n").encode())

    def abandon(self) -> None:
        """Remove what was written so far."""
        self._file.close()
        (self.folder / DATA).unlink(missing_ok=True)


def _native(tree: Any, space: Space) -> Any:
    """Return observations in the environment's own shapes and values."""
    found = dict(leaves(tree))

    def native(path: str) -> Array:
        leaf = by_path[path]
        array: Array = found[path].reshape(-1, *leaf.native_shape)
        return array if leaf.start is None else array + leaf.start

    def build(part: Space, path: str) -> Any:
        if isinstance(part, Dict):
            parts = {name: build(item, f"{path}/{name}".lstrip("/")) for name, item in part.items.items()}
            return tuple(parts[str(i)] for i in range(len(parts))) if part.is_tuple else parts
        return native(path)

    by_path = {leaf.path: leaf for leaf in observation_leaves(space)}
    return build(space, "")


def _write(group: Any, name: str, value: Any, space: Space | None) -> None:
    if isinstance(space, Dict):
        inner = group.create_group(name)
        for key, item in space.items.items():
            name, part = (f"_index_{key}", value[int(key)]) if space.is_tuple else (key, value[key])
            _write(inner, name, part, item)
        return
    group.create_dataset(name, data=value, chunks=True, maxshape=(None, *value.shape[1:]))
