"""Data sets: written, read back, read by Minari; damaged, empty or foreign ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.base.tree import leaves, map_tree
from srl.datasets.reader import Dataset, DatasetError, Episode, locate
from srl.datasets.spaces import action_difference, difference, from_text, to_text
from srl.datasets.writer import DatasetWriter
from srl.environments.random_actions import random_actions

h5py = pytest.importorskip("h5py")

PLAIN: tuple[Space, Space] = (Box((3,)), Discrete(2))
SPACES: dict[str, tuple[Space, Space]] = {
    "plain": PLAIN,
    "real": (Box((2,), low=-1.0, high=1.0), Box((2,), low=-2.0, high=(2.0, 3.0))),
    "image": (Box((36, 40, 3), "uint8", 0, 255), Discrete(3, start=-1)),
    "nested": (
        Dict({"a": Discrete(4, start=1), "b": Dict({"0": Box((2,)), "1": MultiDiscrete((2, 3))}, is_tuple=True)}),
        MultiDiscrete((2, 2, 3, 3), native_shape=(2, 2)),
    ),
}


def random_episode(spaces: tuple[Space, Space], count: int, seed: int, terminated: bool = True) -> Episode:
    rng = np.random.default_rng(seed)
    ends = np.zeros((2, count), bool)
    ends[0 if terminated else 1, -1] = True
    observation, action = (random_actions(space, n, rng) for space, n in zip(spaces, (count + 1, count), strict=True))
    return Episode(observation, action, rng.standard_normal(count).astype(np.float32), *ends)


def written(
    directory: Path, spaces: tuple[Space, Space] = PLAIN, lengths: tuple[int, ...] = (3, 1, 5)
) -> list[Episode]:
    writer = DatasetWriter(directory, *spaces, {"algorithm_name": "random"})
    episodes = [random_episode(spaces, n, seed, terminated=seed % 2 == 0) for seed, n in enumerate(lengths)]
    writer.add_all(episodes)
    writer.close()
    return episodes


def same(one: Episode, other: Episode) -> bool:
    pairs = zip(leaves(vars(one)), leaves(vars(other)), strict=True)
    return all(a == b and x.dtype == y.dtype and np.array_equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("kind", SPACES)
def test_what_is_written_is_read(tmp_path: Path, kind: str) -> None:
    spaces = SPACES[kind]
    episodes = written(tmp_path / "set-v0", spaces)
    dataset = Dataset(locate(tmp_path / "set-v0"))
    dataset.check(*spaces)
    assert (dataset.num_episodes, dataset.num_steps) == (3, 9)
    found = list(dataset.episodes(*spaces))
    assert all(same(one, other) for one, other in zip(found, episodes, strict=True))


@pytest.mark.parametrize("kind", SPACES)
def test_minari_reads_it(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    spaces = SPACES[kind]
    episodes = written(tmp_path / "set-v0", spaces)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    loaded = minari.load_dataset("set-v0")
    assert (loaded.total_episodes, loaded.total_steps) == (3, 9)
    for found, episode in zip(loaded.iterate_episodes(), episodes, strict=True):
        assert np.allclose(found.rewards, episode.reward)
        assert list(found.terminations) == list(episode.terminated)
        if kind != "nested":
            assert loaded.observation_space.contains(found.observations[0])
            assert loaded.action_space.contains(found.actions[0])
    assert locate("set-v0") == (tmp_path / "set-v0" / "data").resolve()


@pytest.mark.parametrize("kind", SPACES)
def test_spaces_survive_as_text(kind: str) -> None:
    for space, role in zip(SPACES[kind], ("observation", "action"), strict=True):
        found = from_text(to_text(space), role)
        assert difference(found, space) == ""
        assert dict(leaves(array_spec(found))) == dict(leaves(array_spec(space)))


def test_differences_name_what_differs() -> None:
    assert "(3,)" in difference(Box((3,)), Box((4,)))
    assert "uint8" in difference(Box((3,)), Box((3,), "uint8"))
    assert "'b'" in difference(Dict({"a": Box((1,)), "b": Discrete(2)}), Dict({"a": Box((1,)), "b": Discrete(3)}))
    assert difference(Box((3,), low=0.0), Box((3,))) == ""
    assert "bounds" in action_difference(Box((1,), low=-1.0, high=1.0), Box((1,), low=-2.0, high=2.0))


def test_a_data_set_of_another_environment_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "set-v0")
    dataset = Dataset(locate(tmp_path / "set-v0"))
    with pytest.raises(DatasetError, match="belongs to another environment: its action space"):
        dataset.check(Box((3,)), Discrete(4))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    for name, damage in (
        ("cut-v0", _cut),
        ("less-v0", _without_rewards),
        ("nan-v0", _with_nan),
        ("json-v0", _not_json),
    ):
        written(tmp_path / name)
        damage(tmp_path / name / "data")
        with pytest.raises(DatasetError, match="damaged"):
            Dataset(locate(tmp_path / name)).check(*PLAIN)


def _cut(folder: Path) -> None:
    content = (folder / "main_data.hdf5").read_bytes()
    (folder / "main_data.hdf5").write_bytes(content[: len(content) // 2])


def _without_rewards(folder: Path) -> None:
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_2/rewards"]


def _with_nan(folder: Path) -> None:
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        file["episode_0/observations"][1, 0] = np.nan


def _not_json(folder: Path) -> None:
    (folder / "metadata.json").write_text("{")


def test_empty_and_missing_data_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no data set 'nothing-v0'"):
        locate("nothing-v0")
    written(tmp_path / "set-v0")
    metadata = tmp_path / "set-v0" / "data" / "metadata.json"
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "total_episodes": 0}))
    with pytest.raises(DatasetError, match="is empty"):
        Dataset(locate(tmp_path / "set-v0"))
    with pytest.raises(DatasetError, match="a data set already"):
        DatasetWriter(tmp_path / "set-v0", *PLAIN, {})
    with pytest.raises(DatasetError, match="NAME-vNUMBER"):
        DatasetWriter(tmp_path / "set", *PLAIN, {})


def test_images_that_minari_compressed_are_read(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    import io

    spaces = SPACES["image"]
    written(tmp_path / "set-v0", spaces, (2,))
    frames = [np.full((36, 40, 3), shade, np.uint8) for shade in (10, 100, 200)]
    with h5py.File(tmp_path / "set-v0" / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        encoded = []
        for frame in frames:
            buffer = io.BytesIO()
            image.fromarray(frame).save(buffer, format="JPEG")
            encoded.append(np.frombuffer(buffer.getvalue(), np.uint8))
        made = file.create_dataset("episode_0/observations", (3,), dtype=h5py.vlen_dtype(np.uint8))
        for i, one in enumerate(encoded):
            made[i] = one
    (episode,) = Dataset(locate(tmp_path / "set-v0")).episodes(*spaces)
    assert map_tree(lambda array: array.shape, episode.observation) == (3, 36, 40, 3)
    assert np.allclose(np.asarray(episode.observation)[:, 0, 0, 0], (10, 100, 200), atol=3)
