"""The standard graph: devices of policies, and numbers of workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.counting import CountingConfig

from srl.algorithms.ppo.config import PPOConfig
from srl.base.config import from_data
from srl.environments.registry import lanes_config
from srl.experiments.graph.environment_probe import probe
from srl.experiments.graph.sizes import choose_sizes
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.keywords import make_options
from srl.workers.actor.worker import ActorConfig
from srl.workers.policy import PolicyWorkerConfig
from srl.workers.trainer.worker import TrainerWorkerConfig


@pytest.mark.parametrize("device", ["auto", "cuda:1"])
def test_trainers_and_policy_workers_use_the_device_and_actors_the_cpu(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    environment = lanes_config("CartPole-v1")
    probed = probe(environment, 0)
    ppo = PPOConfig(device=device, gamma=0.5)
    seen: dict[str, set[str]] = {}
    for inference in ("inline", "host"):
        options = make_options(inference=inference, algorithm=ppo)
        experiment = standard_experiment("CartPole-v1", environment, probed, options)
        for group in experiment.groups:
            if isinstance(group.config, ActorConfig):
                assert [role.algorithm for role in group.config.roles] == [PPOConfig(device="cpu", gamma=0.5)]
                seen.setdefault(inference, set()).add("actors")
            if isinstance(group.config, (TrainerWorkerConfig, PolicyWorkerConfig)):
                assert group.config.algorithm == ppo
                seen.setdefault(inference, set()).add(group.name)
        # `srl.load` builds this, also on a machine without an accelerator.
        description: Any = experiment.description["policy"]
        assert from_data(description["algorithm"]) == PPOConfig(device="cpu", gamma=0.5)
    assert seen == {"inline": {"actors", "trainers"}, "host": {"actors", "trainers", "policies"}}


def test_an_algorithm_without_a_device_is_unchanged_on_cpu() -> None:
    config = CountingConfig()
    assert config.on_cpu() is config


def test_the_cost_of_a_step_determines_the_number_of_actors_except_in_repeatable_runs() -> None:
    probed = probe(lanes_config("CartPole-v1"), 0)
    fast, slow = replace(probed, step_us=1.0), replace(probed, step_us=1e6)
    actors = {
        scheduler: [choose_sizes(make_options(scheduler=scheduler), seen, 4, True).actors for seen in (fast, slow)]
        for scheduler in ("processes", "inline")
    }
    assert actors == {"processes": [3, 4], "inline": [1, 1]}
