"""Recipes of hide-and-seek: their networks and hyperparameters, and that they train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.base.config import from_data
from srl.base.process import num_cores
from srl.base.tree import lane_of
from srl.cli.main import main
from srl.environments.registry import lanes_config
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.recipes.apply import apply
from srl.experiments.recipes.single_agent import RECIPES

pytest.importorskip("mujoco")
pytest.importorskip("numba")

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
SMALL = ["--ppo.entity-size", "8", "--ppo.hidden-sizes", "8", "--ppo.memory-size", "8", "--ppo.epochs", "1"]


def trained(environment: str, root: Path, *words: str) -> Any:
    """The options of a run of one small update."""
    common = ["--steps", "1", "--scheduler", "inline", "--root", str(root), "--name", "run", "--sinks"]
    assert main(["train", environment, *common, "--lanes", "1", "--horizon", "10", *SMALL, *words]) == 0
    return from_data(json.loads((root / "run" / "config.json").read_text())["options"])


def test_the_quadrant_trains_and_its_policy_acts_and_is_recorded(tmp_path: Path) -> None:
    options = trained("hide-and-seek/quadrant", tmp_path, "--scale", "1e-9", "--env-arg", "image_size=64")
    assert options.run.recipe == "hide-and-seek-quadrant"
    assert options.workers.batch % (4 * 10) == 0, "made of whole blocks of 4 agents"
    assert options.algorithm.entities[1] == "box_obs:mask_ab_obs:mask_ab_obs_spoof"
    assert (options.algorithm.memory, options.algorithm.chunk, options.algorithm.normalize_return) == (
        "lstm",
        10,
        "popart",
    )
    lanes = lanes_config("hide-and-seek/quadrant").build(1)
    observation = lane_of(lanes.reset(0)[0].observation, 0)
    lanes.close()
    policy = srl.load(tmp_path / "run")
    assert np.shape(policy.act(observation)) == (5,)
    imageio = pytest.importorskip("imageio.v3")
    video = tmp_path / "video.gif"
    assert main(["record", str(tmp_path / "run"), "--out", str(video), "--max-frames", "3", "--sample"]) == 0
    frames = imageio.imread(video)
    assert frames.shape[:3] == (3, 64, 64)
    assert not np.array_equal(frames[0], frames[-1]), "something moved"


def test_each_agent_may_have_its_own_policy(tmp_path: Path) -> None:
    roles = ["--roles", "hider_0=one", "hider_1=other", "seeker*=seekers", "--team-reward"]
    game = ["--env-arg", "horizon=10", "--env-arg", "image_size=64"]
    trained("hide-and-seek/quadrant", tmp_path, "--scale", "1e-9", *game, *roles)
    returns = srl.evaluate(tmp_path / "run", episodes=1).by_policy
    assert returns.keys() == {"one", "other", "seekers"}
    pytest.importorskip("imageio.v3")
    assert srl.record(tmp_path / "run", tmp_path / "video.gif", max_frames=2).frames == 2


@pytest.mark.parametrize("game", ["large", "food", "blueprint"])
def test_every_game_has_a_recipe_that_fits_its_observations(game: str, tmp_path: Path) -> None:
    options = trained(f"hide-and-seek/{game}", tmp_path, "--env-arg", "horizon=20", "--scale", "1e-9")
    assert options.run.recipe.startswith("hide-and-seek")
    assert options.algorithm.entity_size == 8
    assert options.algorithm.gamma == 0.998


def test_the_policy_has_the_number_of_parameters_of_the_paper() -> None:
    spec = lanes_config("hide-and-seek/reproduce").build(1).spec.teams[0]
    config = apply(BY_NAME["hide-and-seek"], TrainOptions(), ()).algorithm
    network, _ = config.build_network(spec.observation, spec.action, seed=0)
    assert sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad) == 1_628_270


def test_the_option_scale_scales_the_batch_of_the_paper() -> None:
    spec = lanes_config("hide-and-seek/reproduce").build(1).spec
    unit = 32 * 160 * 6

    def batch(**options: Any) -> int | None:
        return apply(BY_NAME["hide-and-seek"], make_options(**options), options, spec).workers.batch

    assert batch(scale=1.0) == 21 * unit  # 640,000 to the nearest
    assert batch(scale=2.0) == 42 * unit
    assert batch() == unit * max(1, round(640_000 * num_cores() / 1024 / unit))
