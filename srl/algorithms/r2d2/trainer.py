"""Q-learning from replayed sequences (Kapturowski et al. 2019)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from srl.algorithms.dqn.network import best_choices, masked
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.normalization import NewObservations
from srl.algorithms.offpolicy.trainer import TransitionTrainer
from srl.algorithms.r2d2.config import R2D2Config
from srl.algorithms.r2d2.network import RecurrentQNetwork
from srl.algorithms.r2d2.returns import n_step_returns, rescale, sequence_priorities
from srl.algorithms.training.devices import move
from srl.api.dataflow import SequenceBatch
from srl.base.tree import Array, map_tree

NETWORK = "q"


class SequenceRows(NamedTuple):
    """N sequences of burn-in rows, T rows to learn from, and one more."""

    observation: Any  # tree of [(burn_in + T + 1) * N, ...], without masks
    allowed: Tensor | None  # [T+1, N, n]: choices that are possible
    first: Tensor  # [burn_in + T + 1, N]
    state: Tensor  # [N, S]
    choice: Tensor  # [T, N, branches]: the chosen actions, as indices into the values
    reward: Tensor  # [T, N], and so are the next three; see `NStepReturns`
    discount: Tensor
    end: Tensor
    learned: Tensor
    weight: Tensor  # [N]


class R2D2Trainer(TransitionTrainer):
    """Double Q-learning on sequences, with a target network. Both networks refresh the stored memory with their own
    parameters."""

    def __init__(self, config: R2D2Config, network: RecurrentQNetwork, seed: int) -> None:
        super().__init__(config, seed)
        self._network = network
        self.observations = NewObservations([network])
        kept = {"counters": self.counters, **self.observations.state()}
        self.learner = ModuleLearner({NETWORK: network}, (NETWORK,), config.device, config.adam_eps, kept)
        self.explore(0.0, learning=False)

    def explore(self, progress: float, learning: bool) -> None:
        config: R2D2Config = self.config
        self._network.epsilon.data.fill_(config.epsilon_at(progress) if learning else 1.0)

    def minibatch(self, batch: SequenceBatch, k: int, device: torch.device) -> SequenceRows:
        config: R2D2Config = self.config
        burn_in, nvec = batch.burn_in, self._network.nvec
        num_rows, num_lanes = batch.first.shape[1:]

        def flat(array: Array) -> Tensor:
            return move(array[k].reshape(num_rows * num_lanes, *array.shape[3:]), device)

        observation, allowed = self._network.split(map_tree(flat, batch.observation))
        if allowed is not None:
            allowed = allowed.view(num_rows, num_lanes, -1)[burn_in:]
        rows = (k, slice(burn_in, None))
        reward, discount, end, learned = n_step_returns(
            batch.reward[rows],
            batch.terminated[rows],
            batch.truncated[rows],
            batch.acting[rows],
            batch.first[rows],
            batch.valid[rows],
            config.n_step,
            config.gamma,
        )
        action: Any = batch.decision["action"]
        chosen = move(np.asarray(action)[k, burn_in:-1], device).reshape(num_rows - burn_in - 1, num_lanes, len(nvec))
        offsets = torch.tensor([sum(nvec[:i]) for i in range(len(nvec))], device=device)
        state: Any = batch.state
        return SequenceRows(
            observation,
            allowed,
            move(batch.first[k], device),
            move(np.asarray(state)[k], device),
            chosen + offsets,
            move(reward, device),
            move(discount, device),
            move(end, device),
            move(learned, device),
            move(batch.weight[k], device),
        )

    def gradient_step(self, batch: SequenceRows, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        config: R2D2Config = self.config
        values = self._unrolled(self._network, batch)  # [T+1, N, n]
        found = values[:-1].gather(2, batch.choice)  # [T, N, branches]
        with torch.no_grad():
            target = self._targets(values, batch)[:, :, None]
        difference = found - target
        if config.huber:
            losses = functional.smooth_l1_loss(found, target.expand_as(found), reduction="none")
        else:
            losses = 0.5 * difference.square()
        learned = batch.learned.float()  # [T, N]
        loss = (losses.mean(2) * learned * batch.weight).sum() / learned.sum().clamp(min=1.0)
        torch.autograd.backward(loss)
        self.learner.descend(NETWORK, learning_rate, config.max_grad_norm)
        if self.num_steps % config.target_update == 0:
            self.learner.follow(NETWORK, config.tau)
        with torch.no_grad():
            errors = difference.abs().mean(2)  # [T, N]
            count = learned.sum().clamp(min=1.0)
            value = (self._network.true_value(found).mean(2) * learned).sum() / count
            metrics = {"loss": loss, "td_error": (errors * learned).sum() / count, "q_value": value}
            return metrics, sequence_priorities(errors, learned, config.priority_eta)

    def _unrolled(self, network: RecurrentQNetwork, batch: SequenceRows) -> Tensor:
        burn_in = len(batch.first) - len(batch.choice) - 1
        return network.unroll(batch.observation, batch.first, batch.state, burn_in)

    def _targets(self, values: Tensor, batch: SequenceRows) -> Tensor:
        """Return the targets [T, N]: h(reward + discount * h^-1(Q'(row `end`, best action))), where Q' is the target
        network, which the network that learns chooses actions for (Kapturowski et al. 2019, eq. 1)."""
        network = self._network
        target = self.learner.targets[NETWORK]
        assert isinstance(target, RecurrentQNetwork)
        future = self._unrolled(target, batch)
        num_rows, num_lanes, num_choices = future.shape
        chooser = masked(values if self.config.double else future, batch.allowed)
        best = best_choices(chooser.reshape(-1, num_choices), network.nvec).view(num_rows, num_lanes, -1)
        value = network.true_value(future.gather(2, best)).mean(2)  # [T+1, N]
        total = torch.addcmul(batch.reward, batch.discount, value.gather(0, batch.end))
        return rescale(total) if network.rescaled else total
