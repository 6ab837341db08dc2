"""Encoders: which space gets which, and what they put out."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.networks.encoders.build import build_encoder
from srl.networks.encoders.images import LeanEncoder, NatureEncoder, build_image_encoder, planes
from srl.networks.spaces.boxes import has_image, is_image, layout_of


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (Box((4, 84, 84), "uint8"), True),
        (Box((1, 36, 36), "uint8"), True),
        (Box((84, 84, 3), "uint8"), True),
        (Box((3, 40, 40), "uint8"), True),
        (Box((4, 35, 84), "uint8"), True),
        (Box((7, 7, 3), "uint8"), True),
        (Box((4, 96, 96, 3), "uint8"), True),
        (Box((3, 84, 84), "float32", 0.0, 1.0), True),
        (Box((4, 84, 3), "uint8"), False),
        (Box((8, 8, 111), "uint8"), False),
        (Box((4, 84, 84)), False),
        (Box((84, 84), "uint8"), True),
        (Box((84, 84), "float32", 0.0, 1.0), False),
        (Box((35, 84), "uint8"), False),
    ],
)
def test_images_are_large_arrays_of_bytes(space: Box, image: bool) -> None:
    assert is_image(space) is image
    assert has_image(Dict({"nested": Dict({"camera": space})})) is image


@pytest.mark.parametrize(
    ("shape", "order", "channels", "sides"),
    [
        ((84, 84, 12), "HWC", 12, (84, 84)),
        ((64, 64, 9), "HWC", 9, (64, 64)),
        ((96, 96, 2), "HWC", 2, (96, 96)),
        ((12, 84, 84), "CHW", 12, (84, 84)),
        ((4, 84, 84), "CHW", 4, (84, 84)),
        ((40, 50, 3), "HWC", 3, (40, 50)),
        ((36, 40), "HW", 1, (36, 40)),
        ((4, 96, 96, 3), "SHWC", 12, (96, 96)),
    ],
)
def test_channels_are_found_and_encoded(
    shape: tuple[int, ...], order: str, channels: int, sides: tuple[int, int]
) -> None:
    space = Box(shape, "uint8")
    assert is_image(space)
    layout = layout_of(space)
    assert (layout.order, layout.channels, layout.sides) == (order, channels, sides)
    assert planes(layout, torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, channels, *sides)


def test_integers_are_encoded_as_fractions_of_their_bounds() -> None:
    gold = Box((2,), "int32", (0.0, -20.0), (10_000.0, 5.0))
    assert build_encoder(gold)(torch.tensor([[5000, 5]], dtype=torch.int32)).tolist() == [[0.5, 0.25]]
    anything = Box((2,), "int64", -(2.0**63), 2.0**63)
    assert build_encoder(anything)(torch.tensor([[7, -3]])).tolist() == [[7.0, -3.0]]
    board = Box((1,), "int8", -1.0, 1.0)
    assert build_encoder(board)(torch.tensor([[-1]], dtype=torch.int8)).tolist() == [[-1.0]]


def test_vectors_are_flattened_and_bytes_scaled() -> None:
    assert build_encoder(Box((2, 2)))(torch.ones(3, 2, 2)).tolist() == [[1.0] * 4] * 3
    assert build_encoder(Box((2,), "float64"))(torch.ones(1, 2, dtype=torch.float64)).dtype == torch.float32
    assert build_encoder(Box((2,), "uint8"))(torch.tensor([[0, 255]], dtype=torch.uint8)).tolist() == [[0.0, 1.0]]


def test_choices_become_one_hot_vectors() -> None:
    assert build_encoder(Discrete(3))(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert build_encoder(MultiDiscrete((2, 3)))(torch.tensor([[1, 0]])).tolist() == [[0, 1, 1, 0, 0]]


def test_named_observations_are_concatenated_in_order_of_their_names() -> None:
    encoder = build_encoder(Dict({"z": Box((1,)), "a": Discrete(2)}))
    assert encoder({"z": torch.tensor([[7.0]]), "a": torch.tensor([1])}).tolist() == [[0.0, 1.0, 7.0]]


@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 36, 50), (64, 40, 4)])
@pytest.mark.parametrize("body", ["nature", "lean"])
def test_the_encoders_of_mnih_are_the_plain_networks(body: str, shape: tuple[int, ...]) -> None:
    encoder = build_image_encoder(Box(shape, "uint8"), body)
    assert isinstance(encoder, NatureEncoder if body == "nature" else LeanEncoder)
    image = torch.randint(0, 256, (2, *shape), dtype=torch.uint8)
    plain = (image.permute(0, 3, 1, 2) if shape[-1] == 4 else image).float() / 255.0
    for layer in [module for module in encoder.modules() if isinstance(module, torch.nn.Conv2d)]:
        plain = functional.relu(layer(plain.contiguous()))
    wanted = functional.relu(encoder.linear(plain.permute(0, 2, 3, 1).flatten(1)))
    assert wanted.shape == (2, 512 if body == "nature" else 256)
    torch.testing.assert_close(encoder(image), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("space", [Dict({}), Box((0,)), MultiDiscrete(())], ids=str)
def test_an_empty_observation_is_refused(space: Space) -> None:
    with pytest.raises(ValueError, match="no encoder"):
        build_encoder(space)
