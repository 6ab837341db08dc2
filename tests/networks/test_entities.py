"""Networks over entities: the paper's size, what the actor and the critic may see, and gradients by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.networks.build import build_network, distribution_for
from srl.networks.encoders.attention import ResidualAttention, attention_pass
from srl.networks.encoders.entities import EntityEncoder, ScanEncoder
from srl.networks.memory.recurrent import RecurrentActorCritic
from srl.networks.options import NetworkOptions

ENTITIES = ("agents:aa:aa_there", "boxes:ab:ab_there", "ramps:ar:ar_there")


def masks(size: int) -> Box:
    return Box((size,), "int8", 0, 1)


FULL_GAME = Dict(
    {
        "own": Box((10,)),
        "agents": Box((5, 10)),
        "boxes": Box((9, 15)),
        "ramps": Box((2, 15)),
        "lidar": Box((30, 1)),
        **{name: masks(size) for name, size in {"aa": 5, "ab": 9, "ar": 2}.items()},
        **{f"{name}_there": masks(size) for name, size in {"aa": 5, "ab": 9, "ar": 2}.items()},
    }
)
ACTION = MultiDiscrete((11, 11, 11, 2, 2))
PAPER = NetworkOptions(
    entities=ENTITIES, scans=("lidar",), hidden_sizes=(256,), activation="relu", memory="lstm", memory_size=256
)
SMALL = NetworkOptions(
    entities=("things:seen:there",), scans=("around",), hidden_sizes=(12,), entity_size=8, attention_heads=2
)
ROOM = Dict(
    {
        "own": Box((3,)),
        "things": Box((4, 5)),
        "seen": masks(4),
        "there": masks(4),
        "around": Box((6,)),
    }
)


CHOICE = Discrete(3)


def built(options: NetworkOptions, observation: Space = ROOM, action: Space = CHOICE) -> Any:
    return build_network(observation, action, distribution_for(action), options, seed=1)


def room(rows: int = 4) -> dict[str, Tensor]:
    torch.manual_seed(3)
    seen = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]], dtype=torch.int8)[:rows]
    return {
        "own": torch.randn(rows, 3),
        "things": torch.randn(rows, 4, 5),
        "seen": seen,
        "there": torch.ones(rows, 4, dtype=torch.int8),
        "around": torch.randn(rows, 6),
    }


def test_the_network_of_the_paper_has_its_number_of_parameters() -> None:
    network = built(PAPER, FULL_GAME, ACTION)
    assert isinstance(network, RecurrentActorCritic)
    assert sum(parameter.numel() for parameter in network.parameters()) == 1_628_270
    assert network.state_size == PAPER.state_size == 2 * 2 * 256


def test_unseen_entities_affect_the_critic_but_not_the_actor() -> None:
    network, observation = built(SMALL), room()
    parameters, value = network(observation)
    changed = {**observation, "things": observation["things"].clone()}
    changed["things"][0, 1] += 5.0  # exists, but is not seen
    other, other_value = network(changed)
    torch.testing.assert_close(other, parameters)
    assert (other_value[0] - value[0]).abs() > 1e-6
    changed["things"][0, 0] += 5.0  # seen
    assert (network(changed)[0][0] - parameters[0]).abs().max() > 1e-6


def test_an_entity_that_does_not_exist_has_no_effect() -> None:
    network, observation = built(SMALL), room()
    observation["there"][:, 3] = observation["seen"][:, 3] = 0
    wanted = network(observation)
    observation["things"][:, 3] = 1e6
    for found, one in zip(network(observation), wanted, strict=True):
        torch.testing.assert_close(found, one)


def test_the_order_of_entities_does_not_matter() -> None:
    network, observation = built(SMALL), room()
    order = torch.tensor([2, 0, 3, 1])
    turned = {
        name: part[:, order] if name in ("things", "seen", "there") else part for name, part in observation.items()
    }
    for found, wanted in zip(network(turned), network(observation), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_rotated_scan_rotates_its_features() -> None:
    encoder = ScanEncoder(6, 1)
    scan = torch.randn(2, 6)
    features = encoder(scan).reshape(2, 6, -1)
    torch.testing.assert_close(encoder(scan.roll(2, 1)).reshape(2, 6, -1), features.roll(2, 1))


def test_attention_and_its_gradients_equal_those_of_torch() -> None:
    torch.manual_seed(2)
    projected = torch.randn(3, 4, 24, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(3, 1, 4, dtype=torch.float64)
    bias[1, 0, 2:] = -1e10
    found = attention_pass(projected, bias, 2)
    q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in projected.chunk(3, 2))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, None])
    wanted = wanted.transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, wanted)
    factor = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * factor).sum(), projected)[0] for out in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_attention_is_the_same_with_and_without_gradients() -> None:
    block = ResidualAttention(8, 2)
    entities, counts = torch.randn(3, 5, 8), torch.ones(3, 5)
    counts[:, 3:] = 0
    learning = block(entities, counts)
    with torch.no_grad():
        torch.testing.assert_close(block(entities, counts), learning)


def test_an_embedding_is_one_layer_over_the_agent_and_the_entity() -> None:
    encoder, observation = EntityEncoder(ROOM, SMALL, critic=True), room(1)
    known = torch.cat((encoder.scans[0](observation["around"]), observation["own"]), 1)
    weight = torch.cat((encoder.embed_own.weight[8:], encoder.embed[0]), 1)
    wanted = torch.cat((known, observation["things"][:, 2]), 1) @ weight.t() + encoder.embed_own.bias[8:]
    seen: list[Tensor] = []
    encoder.attention.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    encoder(observation)
    torch.testing.assert_close(seen[0][:, 3], wanted.relu())


GLOBAL = Dict({"own": Box((3,)), "state": Box((2,))})


@pytest.mark.parametrize("options", [{}, {"memory": "gru"}, {"towers": "separate", "memory": "lstm"}], ids=str)
def test_global_observations_affect_the_critic_but_not_the_actor(options: dict[str, Any]) -> None:
    network = built(NetworkOptions(global_keys=("state",), **options), GLOBAL)
    memory = [torch.zeros(2, network.state_size)] if "memory" in options else []
    own, outputs = torch.randn(2, 3), []
    for state in (torch.zeros(2, 2), torch.ones(2, 2)):
        outputs.append(network({"own": own, "state": state}, *memory))
    assert torch.equal(outputs[0][0], outputs[1][0])
    assert (outputs[0][1] != outputs[1][1]).all()


@pytest.mark.parametrize(
    ("options", "observation", "message"),
    [
        ({"entities": ("things",)}, Box((3,)), "entities must name parts of a Dict observation"),
        ({"entities": ("thing",)}, ROOM, "'thing' must be a Box .* there is no such part.*things"),
        ({"entities": ("own",)}, ROOM, "'own' must be a Box .number, features."),
        ({"entities": ("things:see",)}, ROOM, "no part 'see'.*seen"),
        ({"entities": ("things:own",)}, ROOM, "mask 'own' needs 4 entries, but has 3"),
        ({"entities": ("things:seen:there:more",)}, ROOM, r"ACTOR_MASK\[:CRITIC_MASK"),
        ({"scans": ("thins",)}, ROOM, "scan 'thins'"),
        ({"global_keys": ("stat",)}, GLOBAL, "no key 'stat'.*state"),
        ({"global_keys": ("own", "state")}, GLOBAL, "the actor must see a part that is neither entities nor global"),
        (
            {"global_keys": ("state",), "towers": "shared"},
            GLOBAL,
            "towers='shared' cannot be combined with global_keys",
        ),
    ],
)
def test_options_that_do_not_fit_the_observation_are_refused(
    options: dict[str, Any], observation: Space, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PPOConfig(**options).check(observation, Discrete(3))
