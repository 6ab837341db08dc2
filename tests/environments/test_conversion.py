"""Conversion of native observations to arrays, and of arrays to native actions with their shapes and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.spaces import SPACES

from srl.api.spaces import Box
from srl.base.config import from_data, to_data
from srl.base.tree import lane_of, leaves, map_tree
from srl.environments.conversion import action_decoder, batch_axes, observation_encoder
from srl.environments.spaces import from_gymnasium


@pytest.mark.parametrize("name", SPACES)
def test_native_values_survive_the_conversion_to_arrays_and_back(name: str) -> None:
    native = SPACES[name]
    native.seed(0)
    action = from_data(to_data(from_gymnasium(native, "action")))
    value = native.sample()
    array = map_tree(lambda leaf: leaf[None], observation_encoder(action)(value))
    again = lane_of(action_decoder(action)(array), 0)
    assert native.contains(again)
    for (_, found), (_, expected) in zip(leaves(_tree(again)), leaves(_tree(value)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def _tree(value: Any) -> Any:
    if isinstance(value, tuple):
        return {str(place): _tree(item) for place, item in enumerate(value)}
    return {key: _tree(item) for key, item in value.items()} if isinstance(value, dict) else np.asarray(value)


def test_a_batch_is_recognized_by_its_axes() -> None:
    space = Box((3,))
    assert batch_axes(space, np.zeros(3)) == ()
    assert batch_axes(space, np.zeros((5, 3))) == (5,)
    with pytest.raises(ValueError, match=r"expected an observation of shape \(3,\), .* found shape \(5, 4\)"):
        batch_axes(space, np.zeros((5, 4)))
