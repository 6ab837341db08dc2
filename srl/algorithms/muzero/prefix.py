"""The value prefix of EfficientZero (Ye et al. 2021): sums of rewards along predicted states."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from srl.algorithms.muzero.network import DenseLayers, MuZeroNetwork
from srl.algorithms.training.devices import fetch
from srl.base.tree import Array
from srl.search import Evaluation, MLPModelConfig, Step

HORIZON = 5
"""Steps after which the memory and the sums begin again, in training and in a search, as in the paper."""


class PrefixNetwork(MuZeroNetwork):
    """A network with a memory (LSTM) over predicted states, from which it predicts the sum of the rewards since the
    memory was empty. When exactly a reward comes is often uncertain, which matters less for a sum."""

    def _build_parts(self, model: MLPModelConfig) -> None:
        super()._build_parts(model)
        self.memory = nn.LSTMCell(model.latent_size, model.latent_size)
        self.prefix = DenseLayers((model.latent_size, *model.prediction[-1:], model.num_bins), is_zero=True)

    @property
    def num_compiled(self) -> int:
        return 0

    def compiled(self, parameters: Array) -> PrefixModel:
        return PrefixModel(self)

    def reward_logits(self, latents: Tensor, predicted: Tensor) -> Tensor:
        found: list[Tensor] = []
        memory = None
        for k, latent in enumerate(latents):
            memory = self.memory(latent, None if k % HORIZON == 0 else memory)
            found.append(self.prefix(memory[0]))
        return torch.stack(found)

    def reward_targets(self, reward: Tensor) -> Tensor:
        return torch.cat([part.cumsum(0) for part in torch.split(reward, HORIZON)])


class PrefixModel:
    """The network as the model of a search. A state also has the memory, the sum so far and the depth. The reward of a
    step is the difference between its sum and the one before."""

    def __init__(self, network: PrefixNetwork) -> None:
        self._network = network

    def root(self, features: Array) -> Evaluation:
        network = self._network
        with torch.inference_mode():
            latent = network.representation(torch.from_numpy(features).to(network.bins.device)).tanh()
            policy, value, _ = network.predict(latent)
            empty, numbers = torch.zeros_like(latent), latent.new_zeros(len(latent), 2)
            state = {"latent": latent, "hidden": empty, "cell": empty.clone(), "sum_and_depth": numbers}
            return Evaluation(state, fetch(network.mean(value)).numpy(), fetch(policy).numpy())

    def __call__(self, state: Any, action: Tensor) -> Step:
        network = self._network
        with torch.inference_mode():
            total, depth = state["sum_and_depth"].unbind(1)
            kept = (depth.remainder(HORIZON) != 0).float()
            latent = network.imagine(state["latent"], action.long())
            hidden, cell = network.memory(latent, (state["hidden"] * kept[:, None], state["cell"] * kept[:, None]))
            policy, value, _ = network.predict(latent)
            value, new_total = network.mean(torch.stack((value, network.prefix(hidden))))
            reward = new_total - total * kept
            numbers = torch.stack((new_total, depth + 1.0), 1)
            after = {"latent": latent, "hidden": hidden, "cell": cell, "sum_and_depth": numbers}
            discount = network.model.discount
            return Step(after, fetch(reward).numpy(), discount, fetch(value).numpy(), fetch(policy).numpy())
