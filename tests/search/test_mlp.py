"""The compiled network equals a slow one in numpy, and searches with it those that call it from Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from search.models import same

from srl.search import GumbelSearch, MLPModel, MLPModelConfig, PUCTSearch, Search

CONFIGS = {
    "bins": MLPModelConfig(4, 3, 16, (24,), (20,), (12, 8), num_bins=11),
    "unit": MLPModelConfig(4, 3, 16, (), (), (12,), num_bins=5, bin_width=0.5, latent="unit"),
    "numbers": MLPModelConfig(6, 9, 128, (128,), (128,), (128,), num_bins=1, discount=0.9),
}


def model_of(config: MLPModelConfig, seed: int = 0) -> MLPModel:
    random = np.random.default_rng(seed)
    return config.build(random.normal(0, 0.2, config.num_parameters).astype(np.float32))


def slow(model: MLPModel, part: str, inputs: Any) -> Any:
    """Apply the dense layers of one part in double precision."""
    config, hidden = model.config, np.asarray(inputs, np.float64)
    arrays = {
        name: model.parameters[at : at + int(np.prod(shape))].reshape(shape) for name, at, shape in config.layout()
    }
    last = len(config.sizes()[part]) - 2
    for index in range(last + 1):
        hidden = hidden @ arrays[f"{part}.{index}.weight"] + arrays[f"{part}.{index}.bias"]
        hidden = np.maximum(hidden, 0) if index < last else hidden
    return hidden


def bounded(config: MLPModelConfig, outputs: Any) -> Any:
    if config.latent == "tanh":
        return np.tanh(outputs)
    low, high = outputs.min(1, keepdims=True), outputs.max(1, keepdims=True)
    return (outputs - low) / np.maximum(high - low, 1e-5)


def number(config: MLPModelConfig, bins: Any) -> Any:
    if config.num_bins == 1:
        return bins[:, 0]
    weights = np.exp(bins - bins.max(1, keepdims=True))
    h = (weights / weights.sum(1, keepdims=True)) @ (
        (np.arange(config.num_bins) - config.num_bins // 2) * config.bin_width
    )
    return np.sign(h) * (((np.sqrt(1 + 0.004 * (np.abs(h) + 1.001)) - 1) / 0.002) ** 2 - 1)


@pytest.mark.parametrize("rows", [1, 8, 40])  # BLAS and our own product
@pytest.mark.parametrize("name", CONFIGS)
def test_each_part_equals_a_slow_one(name: str, rows: int) -> None:
    config, model, random = CONFIGS[name], model_of(CONFIGS[name]), np.random.default_rng(1)
    actions, bins = config.num_actions, config.num_bins

    def check(found: Any, latent: Any) -> None:
        outputs = slow(model, "prediction", latent)
        assert found.logits == pytest.approx(outputs[:, :actions], abs=1e-4)
        assert found.value == pytest.approx(number(config, outputs[:, actions : actions + bins]), abs=1e-3)

    seen = random.normal(size=(rows, config.observation_size)).astype(np.float32)
    root = model.root(seen)
    latent = bounded(config, slow(model, "representation", seen))
    assert root.state == pytest.approx(latent, abs=1e-4)
    check(root, latent)
    action = random.integers(actions, size=rows)
    step = model(root.state, action)
    after = bounded(config, slow(model, "dynamics", np.concatenate((root.state, np.eye(actions)[action]), 1)))
    assert step.state == pytest.approx(after, abs=1e-4)
    check(step, after)
    rewards = slow(model, "prediction", after)[:, actions + bins :]
    assert step.reward == pytest.approx(number(config, rewards), abs=1e-3)
    assert step.discount == config.discount


def test_a_bin_decodes_to_the_inverse_of_the_h_transform() -> None:
    """All weight on the bin of h(x) gives x, to 1e-4 of it."""
    for x in (-300.0, -3.0, 0.0, 0.5, 7.0, 290.0):
        h = np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 0.001 * x
        config = MLPModelConfig(1, 1, 1, (), (), (), num_bins=3, bin_width=abs(h) or 1.0)
        model = config.build(np.zeros(config.num_parameters, np.float32))
        start = {name: at for name, at, _ in config.layout()}["prediction.0.bias"]
        model.parameters[start + 1 + 1 + int(np.sign(x))] = 80.0
        assert model.root(np.zeros((1, 1))).value[0] == pytest.approx(x, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("lanes", [1, 5, 64])
@pytest.mark.parametrize("kind", [GumbelSearch, PUCTSearch])
def test_a_compiled_search_equals_one_that_calls_the_network(kind: type[Search], lanes: int) -> None:
    model = model_of(CONFIGS["bins"])
    root = model.root(np.random.default_rng(2).normal(size=(lanes, 4)))
    search = kind(20, 3)
    compiled = search.run(root, model, np.arange(lanes))
    assert same(compiled, search.run(root, lambda state, action: model(state, action), np.arange(lanes)))
    assert np.all(compiled.visits.sum(1) == 20)


def test_parameters_are_used_in_place_and_checked() -> None:
    config = CONFIGS["bins"]
    model = model_of(config)
    seen = np.ones((2, 4))
    before = model.root(seen).value
    model.parameters *= 0
    assert not np.array_equal(model.root(seen).value, before)
    with pytest.raises(ValueError, match=r"expected [0-9]+ parameters"):
        config.build(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="float32"):
        config.build(np.zeros(config.num_parameters))
    with pytest.raises(ValueError, match=r"expected observations \[L, 4\]"):
        model.root(np.ones((2, 5)))
    with pytest.raises(ValueError, match="num_bins must be odd"):
        MLPModelConfig(1, 1, num_bins=4)
    with pytest.raises(ValueError, match="the model has 3 actions"):
        GumbelSearch(5, 4).run(model.root(seen)._replace(logits=np.zeros((2, 4))), model, np.arange(2))
