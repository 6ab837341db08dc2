"""Every episode is in the file once, whatever was killed, resumed or full."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from srl.api.block import Episodes
from srl.storage.episode_file import EpisodeFile, read_episodes, write_episodes


def episodes(*returns: float, **columns: list[float]) -> Episodes:
    whole = {"return": list(returns), "length": [9.0] * len(returns), "lane": [3.0] * len(returns), **columns}
    return Episodes.of({name: np.array(values) for name, values in whole.items()})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.bin"


def test_episodes_of_several_policies_actors_and_columns(path: Path) -> None:
    file = EpisodeFile(path)
    file.add("hiders", 1, 64, {"actors/0": episodes(1.0, 2.0), "actors/1": episodes(3.0, won=[1.0])}, {})
    file.add("seekers", 1, 128, {"actors/1": episodes(-4.0, seed=[2.0**31 + 1])}, {"actors/1": "far"})
    file.add("hiders", 2, 192, {}, {})
    file.close()
    found = {name: values.tolist() for name, values in read_episodes(path).items()}
    assert np.isnan(found["won"][0])
    assert {name: found[name] for name in ("step", "update", "policy", "actor", "host", "return", "lane")} == {
        "step": [64, 64, 64, 128],
        "update": [1, 1, 1, 1],
        "policy": ["hiders", "hiders", "hiders", "seekers"],
        "actor": ["actors/0", "actors/0", "actors/1", "actors/1"],
        "host": ["", "", "", "far"],
        "return": [1.0, 2.0, 3.0, -4.0],
        "lane": [3, 3, 3, 3],
    }
    assert (found["won"][2], found["seed"][3]) == (1.0, 2**31 + 1)


def test_what_a_killed_run_repeats_counts_once(path: Path) -> None:
    file = EpisodeFile(path)
    for update in (1, 2, 3, 4):
        file.add("policy", update, update, {"actors/0": episodes(update)}, {})
    file.add("frozen", 0, 4, {"actors/0": episodes(7.0)}, {})
    path.write_bytes(path.read_bytes()[:-5])  # killed while it wrote the last one
    resumed = EpisodeFile(path)
    resumed.resume({"policy": 2})  # update 3 has no episode this time
    resumed.add("policy", 4, 4, {"actors/0": episodes(40.0)}, {})
    resumed.add("policy", 4, 4, {"actors/0": episodes(41.0)}, {})  # reported again after a takeover
    resumed.add("frozen", 0, 5, {"actors/0": episodes(8.0)}, {})
    assert read_episodes(path)["return"].tolist() == [1.0, 2.0, 41.0, 8.0]


def test_a_run_without_episodes_has_empty_columns(path: Path) -> None:
    EpisodeFile(path).resume({"policy": 0})
    assert {name: len(values) for name, values in read_episodes(path).items()}["return"] == 0
    with pytest.raises(FileNotFoundError):
        read_episodes(path.with_name("missing"))


def test_episodes_as_csv_and_parquet(path: Path, tmp_path: Path) -> None:
    EpisodeFile(path).add("policy", 1, 64, {"actors/0": episodes(1.5, 2.0, won=[1.0, np.nan])}, {})
    columns = read_episodes(path)
    write_episodes(columns, tmp_path / "e.csv")
    assert (tmp_path / "e.csv").read_text().splitlines() == [
        "step,update,policy,actor,host,return,length,lane,won",
        "64,1,policy,actors/0,,1.5,9,3,1",
        "64,1,policy,actors/0,,2,9,3,",
    ]
    with pytest.raises(ValueError, match=r"must end with .csv or .parquet"):
        write_episodes(columns, tmp_path / "e.txt")
    parquet = pytest.importorskip("pyarrow.parquet")
    write_episodes(columns, tmp_path / "new" / "e.parquet")
    assert parquet.read_table(tmp_path / "new" / "e.parquet").to_pydict()["return"] == [1.5, 2.0]
