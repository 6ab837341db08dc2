"""The config of a run that was saved with version 0.1 can still be read, so that old runs can be resumed and used."""

from __future__ import annotations

import json
from pathlib import Path

from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LanesConfig
from srl.base.config import from_data
from srl.experiments.options.train_options import TrainOptions

SAVED = Path(__file__).with_name("saved_config.json")
"""Never write this file again after a release: change the code so that it can still be read."""


def test_a_saved_config_can_still_be_read() -> None:
    config = json.loads(SAVED.read_text())
    options = from_data(config["options"])
    assert isinstance(options, TrainOptions)
    assert (options.run.steps, options.workers.scheduler) == (2000, "inline")
    assert isinstance(from_data(config["lanes"]), LanesConfig)
    policy = config["policies"]["policy"]
    algorithm, observation, action = (from_data(policy[part]) for part in ("algorithm", "observation", "action"))
    assert isinstance(algorithm, AlgorithmConfig)
    algorithm.check(observation, action)
