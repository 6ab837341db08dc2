"""Facts that an environment reports about its episodes are part of the metrics of a run."""

import json

import pytest

import srl


@pytest.mark.parametrize("sizes", [pytest.param({}, marks=pytest.mark.slow), {"num_hiders": [1, 2]}])
def test_statistics_of_hide_and_seek_are_among_the_metrics(tmp_path, sizes):
    """This includes unaligned lanes, which occur when the sizes of teams are drawn for each episode."""
    pytest.importorskip("mujoco")
    pytest.importorskip("numba")
    options = {"horizon": 10, "num_seekers": 1, **sizes}
    srl.train(
        "hide-and-seek/quadrant",
        steps=400,
        lanes=4,
        horizon=20,
        env_args=options,
        scheduler="inline",
        recipe="none",
        root=tmp_path,
    )
    rows = [json.loads(line) for line in next(tmp_path.rglob("metrics.jsonl")).read_text().splitlines()]
    assert 0 <= rows[-1]["seen_share"] <= 1
    assert "box_lock_share_prep" in rows[-1]
    assert 0 <= rows[-1]["stage_chasing"] <= 1
