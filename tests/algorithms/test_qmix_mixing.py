"""Mixers of VDN and QMIX: monotonic in every agent's value, given the state of the game."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srl.algorithms.qmix.config import QMIXConfig
from srl.algorithms.qmix.mixing import MixingNetwork, Sum
from srl.api.spaces import Box, Dict, Discrete

OBSERVATION = Dict({"observation": Box((3,)), "state": Box((4,)), "agent_id": Discrete(3)})


def mixing_network(seed: int = 0, **options: Any) -> MixingNetwork:
    mixer = QMIXConfig(num_agents=3, mixing_size=5, **options).build_mixer(OBSERVATION, Discrete(2), seed)
    assert isinstance(mixer, MixingNetwork)
    return mixer


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    hypernet_size=st.sampled_from([0, 6]),
)
def test_the_joint_value_never_falls_with_an_agents_value(seed: int, scale: float, hypernet_size: int) -> None:
    mixer = mixing_network(seed, hypernet_size=hypernet_size)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in mixer.parameters():  # also weights that training may reach, of any sign
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    state = torch.randn(16, 4, generator=generator)
    values = (torch.randn(16, 3, generator=generator) * scale).requires_grad_()
    (slope,) = torch.autograd.grad(mixer(values, state).sum(), values)
    assert (slope >= 0.0).all()
    assert slope.abs().sum() > 0.0, "the mixer must not be constant"


def test_the_weights_depend_on_the_state_and_the_bias_may_be_negative() -> None:
    mixer, values = mixing_network(), torch.ones(2, 3, requires_grad=True)
    (slope,) = torch.autograd.grad(mixer(values, torch.tensor([[1.0] * 4, [-1.0] * 4])).sum(), values)
    assert not torch.allclose(slope[0], slope[1])


def test_vdn_adds() -> None:
    assert Sum()(torch.tensor([[1.0, -2.0, 4.0]]), None).tolist() == [3.0]


def test_the_state_is_that_of_an_agent_that_is_present() -> None:
    mixer = mixing_network()
    state = torch.arange(24.0).view(2, 3, 4)
    observation = {"observation": torch.zeros(2, 3, 3), "state": state, "agent_id": torch.zeros(2, 3).long()}
    present = torch.tensor([[False, True, True], [True, True, True]])
    assert torch.equal(mixer.encode(observation, present), torch.stack([state[0, 1], state[1, 0]]))


def test_without_a_state_the_observations_of_all_agents_take_its_place() -> None:
    mixer = QMIXConfig(num_agents=2).build_mixer(Box((3,)), Discrete(2), 0)
    seen = torch.arange(12.0).view(2, 2, 3) + 1.0
    features = mixer.encode(seen, torch.tensor([[True, True], [True, False]]))
    expected = [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 0.0, 0.0, 0.0]]
    assert features is not None
    assert features.tolist() == expected
    masked = Dict({"action_mask": Box((2,), "int8", 0, 1), "observation": Box((3,))})
    assert QMIXConfig(num_agents=2).build_mixer(masked, Discrete(2), 0).state.num_features == 6  # type: ignore[union-attr]


def test_named_global_keys_must_exist() -> None:
    with pytest.raises(ValueError, match=r"sees 'world'.*has the parts \['agent_id', 'observation', 'state'\]"):
        QMIXConfig(global_keys=("world",)).check(OBSERVATION, Discrete(2))
    QMIXConfig().check(Box((3,)), Discrete(2))
