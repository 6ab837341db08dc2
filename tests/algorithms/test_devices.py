"""Devices: what a name means, and that nothing but `move`, `place` and `fetch` crosses between them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.simulated_device import AcceleratorPaths, ImplicitCopy, far_device
from support.trajectories import random_trajectory

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.training import learner
from srl.algorithms.training.devices import available_devices, fetch, move, resolve_device
from srl.algorithms.training.ranks import backend_for
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.api.trainer import TrainerGroup
from srl.base.tree import Array, Tree, leaves, map_tree

IMAGE = Box((4, 36, 36), "uint8")
PAIRS: list[tuple[Space, Space]] = [
    (Box((4,)), Discrete(2)),
    (Box((17,), "float64"), Box((6,))),
    (Discrete(5), MultiDiscrete((2, 3))),
    (Dict({"a": Box((2, 2)), "b": MultiDiscrete((2, 2))}), Box((2, 2), "float64")),
    (IMAGE, Discrete(6)),
    (Dict({"camera": IMAGE, "speed": Box((3,))}), Box((2,))),
]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> int:
    count: int = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    return count


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "device_count", lambda: 1)


def ranks_of(name: str, size: int) -> list[str]:
    return [str(resolve_device(name, rank)) for rank in range(size)]


@pytest.mark.parametrize("gpus", [0], indirect=True)
def test_without_an_accelerator_auto_is_the_cpu(gpus: int) -> None:
    assert ranks_of("auto", 2) == ranks_of("cpu", 2) == ["cpu", "cpu"]


@pytest.mark.parametrize("gpus", [2], indirect=True)
def test_auto_and_cuda_spread_the_ranks_over_devices_and_a_numbered_device_does_not(gpus: int, apple: None) -> None:
    assert available_devices() == ["cpu", "cuda:0", "cuda:1", "mps:0"]
    assert ranks_of("auto", 3) == ranks_of("cuda", 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert ranks_of("cuda:1", 3) == ["cuda:1"] * 3
    assert ranks_of("cpu", 3) == ["cpu"] * 3
    assert ranks_of("mps", 2) == ["mps:0"] * 2


@pytest.mark.parametrize("gpus", [0], indirect=True)
def test_auto_takes_mps_where_there_is_no_cuda(gpus: int, apple: None) -> None:
    assert ranks_of("auto", 2) == ["mps:0"] * 2


@pytest.mark.parametrize(
    ("gpus", "name"), [(2, "cuda:2"), (0, "cuda"), (2, "gpu"), (2, "meta"), (2, "")], indirect=["gpus"]
)
def test_a_missing_device_is_refused_before_anything_is_launched(gpus: int, name: str) -> None:
    available = "cpu, cuda:0, cuda:1" if gpus else "cpu"
    with pytest.raises(ValueError, match=f"no device '{name}'; choose from auto, {available} "):
        PPOConfig(device=name).check(Box((4,)), Discrete(2))


def test_the_cpu_is_used_without_asking_for_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> bool:
        raise AssertionError

    monkeypatch.setattr(torch.cuda, "is_available", asked)
    config = PPOConfig(device="cpu")
    config.check(Box((4,)), Discrete(2))
    config.build_policy(Box((4,)), Discrete(2), 0)
    config.build_trainer(Box((4,)), Discrete(2), 0)


def test_ranks_use_nccl_only_if_each_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    first, second, cpu, mps = (torch.device(name) for name in ("cuda:0", "cuda:1", "cpu", "mps:0"))
    assert backend_for([first, second]) == "cpu:gloo,cuda:nccl"
    assert backend_for([first, second, first]) == backend_for([cpu, cpu]) == "gloo"
    assert backend_for([mps]) == "gloo"  # a single rank never uses it
    with pytest.raises(ValueError, match="data-parallel trainers must be on cpu or cuda; found mps:0, mps:0"):
        backend_for([mps, mps])


def test_on_the_cpu_nothing_is_copied() -> None:
    array = np.arange(3.0)
    tensor = move(array, torch.device("cpu"))
    assert np.shares_memory(fetch(tensor).numpy(), array)
    trainer = PPOConfig(device="cpu").build_trainer(Box((4,)), Discrete(2), 0)
    for again in (trainer.parameters(), trainer.state()["parameters"]):
        assert np.shares_memory(trainer.parameters(), again)
    for name, part in trainer.state().items():
        assert np.shares_memory(trainer.state()[name], part), name


def test_the_simulated_device_refuses_what_an_accelerator_refuses() -> None:
    with far_device() as device:
        far, near = device.move(np.ones(3), torch.device("cpu")), torch.ones(3)
        for mistake in (
            lambda: far + near,
            lambda: far[1:].copy_(near[1:]),
            lambda: torch.add(far, far, out=near),
            far.numpy,
            far.tolist,
            lambda: float(far.sum()),
            lambda: bool((far > 0.0).all()),
            lambda: device.fetch(near),
        ):
            with pytest.raises(ImplicitCopy):
                mistake()
        assert (far * 2.0 + torch.ones(3, device=far.device)).data.shape == (3,)


def zeros(observation: Space, rows: int) -> Tree:
    return map_tree(lambda spec: spec.empty(rows), array_spec(observation))


@pytest.mark.parametrize(("observation", "action"), PAIRS, ids=str)
@pytest.mark.parametrize("greedy", [False, True])
def test_a_policy_computes_on_its_device_and_answers_on_the_cpu(
    observation: Space, action: Space, greedy: bool
) -> None:
    def decide() -> dict[str, Array]:
        policy = PPOConfig().build_policy(observation, action, 1)
        policy.load(PPOConfig().build_trainer(observation, action, 2).parameters(), 5)
        decision = policy.act(zeros(observation, 3), None, np.zeros(3, bool), greedy=greedy)
        return {name: np.asarray(part) for name, part in decision.items()}

    with AcceleratorPaths():
        near = decide()
    with far_device():
        far = decide()
    assert {name: part.tobytes() for name, part in far.items()} == {name: part.tobytes() for name, part in near.items()}


@pytest.mark.parametrize(("observation", "action"), PAIRS, ids=str)
def test_a_trainer_moves_a_batch_once_and_learns_on_its_device(observation: Space, action: Space) -> None:
    config = PPOConfig(epochs=2, num_minibatches=3)
    rows, lanes = 5, 8
    batch = random_trajectory(config, observation, action, config.build_trainer(observation, action, 2), rows, lanes, 1)

    def learn() -> tuple[list[dict[str, float]], dict[str, Array]]:
        trainer = config.build_trainer(observation, action, 2)
        metrics = [dict(trainer.step(batch, 0.5).metrics) for _ in range(2)]
        restored = config.build_trainer(observation, action, 9)
        restored.restore({name: array.copy() for name, array in trainer.state().items()})
        restored.join(TrainerGroup(0, 1, ""))
        metrics.append(dict(restored.step(batch, 1.0).metrics))
        np.testing.assert_array_equal(restored.parameters(), restored.state()["parameters"])
        return metrics, {name: array.copy() for name, array in restored.state().items()}

    with AcceleratorPaths():
        metrics, state = learn()
    with far_device() as device:
        far_metrics, far_state = learn()
    assert far_metrics == metrics
    for name, array in state.items():
        assert (far_state[name].shape, far_state[name].dtype) == (array.shape, array.dtype)
        assert far_state[name].tobytes() == array.tobytes(), name
    # Images as bytes, each observation once per update; minibatches are gathered from it on the device.
    observations = [(((rows - 1) * lanes, *spec.shape), spec.dtype) for _, spec in leaves(array_spec(observation))]
    for each in observations:
        assert device.moved.count(each) == 3 * observations.count(each)
    # Rows, actions and three columns beside it, and the order of each epoch; before the third, the restored state.
    assert len(device.moved) == 3 * (len(observations) + 3 + config.epochs) + 4


def test_a_trainer_that_moves_to_another_device_keeps_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PPOConfig()
    stays, settles = (config.build_trainer(Box((4,)), Discrete(2), 0) for _ in range(2))
    batch = random_trajectory(config, Box((4,)), Discrete(2), stays, rows=9, lanes=8, seed=1)
    for trainer in (stays, settles):
        trainer.step(batch, 0.0)
    settled: list[torch.device] = []

    def place(network: Any, device: torch.device) -> Any:
        settled.append(device)
        return network

    # Another name of the CPU, which a trainer takes for another device.
    monkeypatch.setattr(learner, "resolve_device", lambda name, rank=0: torch.device("cpu", 0))
    monkeypatch.setattr(learner, "place", place)
    settles.join(TrainerGroup(0, 1, ""))
    assert settled == [torch.device("cpu", 0)]
    for _ in range(2):
        for trainer in (stays, settles):
            trainer.step(batch, 0.0)
        for name, array in stays.state().items():
            assert settles.state()[name].tobytes() == array.tobytes(), name
