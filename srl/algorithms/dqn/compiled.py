"""Gradient steps of Q-learning in compiled code, for networks of dense layers on the CPU."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import nn

from srl.algorithms.dqn.config import QLearningConfig
from srl.algorithms.dqn.kernels import AHEAD, Results, Rows, Settings, Work, learn
from srl.algorithms.dqn.network import DenseBody, Heads, QNetwork
from srl.algorithms.dqn.returns import MeanReturn
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.threads import in_threads, new_team, stack_of
from srl.api.dataflow import TransitionBatch
from srl.base.blas import limit_blas_threads
from srl.base.tree import Array, map_tree
from srl.networks.dense_kernels import kept_size
from srl.networks.encoders.images import WideLinear


def supports(network: QNetwork, device: torch.device) -> bool:
    """Return whether only dense layers learn, whose inputs need no gradient, and output expected returns."""
    body = network.body
    if not (device.type == "cpu" and isinstance(body, DenseBody) and isinstance(body.heads, Heads)):
        return False
    learned = any(parameter.requires_grad for parameter in body.encoder.parameters())
    return not learned and all(isinstance(layer, WideLinear) for layer in _layers(body)) and _is_mean(network)


def _is_mean(network: QNetwork) -> bool:
    return isinstance(network.returns, MeanReturn)


def _layers(body: DenseBody) -> list[nn.Module]:
    return [*body.layers, *body.heads.layers()]


class CompiledSteps:
    """Gradient steps of a Q network: its parameters as a flat vector, on which compiled code works, and its memory."""

    def __init__(self, learner: ModuleLearner, name: str, network: QNetwork, num_threads: int) -> None:
        limit_blas_threads()
        body = network.body
        assert isinstance(body, DenseBody)
        self._learner, self._network, self._body, self._num_threads = learner, network, body, num_threads
        layers: Any = [(layer.weight, layer.bias) for layer in _layers(body)]
        self._stack = stack_of(learner, name, layers, num_threads)
        self._branches = np.array([0, *accumulate(network.nvec)], np.int64)
        self._work: dict[int, Work] = {}  # by the number of rows

    def learn(self, batch: TransitionBatch, config: QLearningConfig, rate: float, first_number: int) -> Results:
        """Make a gradient step for each minibatch; the first has the number `first_number`."""
        settings = Settings(
            self._body.is_tanh,
            config.double,
            config.huber,
            config.target_update,
            config.tau,
            rate,
            config.adam_eps,
            config.max_grad_norm or 0.0,
        )
        rows, shape = self._rows(batch), batch.reward.shape
        results = Results(np.zeros(shape, np.float32), np.zeros(shape, np.float32))
        shared: Any = (self._stack, self._branches, rows, settings, self._memory(rows), results)
        in_threads(self._num_threads, lambda part: learn(part, first_number, *shared))
        self._learner.copy_constants()
        return results

    def _rows(self, batch: TransitionBatch) -> Rows:
        shape = batch.reward.shape

        def flat(array: Array) -> torch.Tensor:
            return torch.from_numpy(array.reshape(-1, *array.shape[2:]))

        def split(observation: Any) -> tuple[Array, torch.Tensor | None]:
            rest, allowed = self._network.split(map_tree(flat, observation))
            with torch.no_grad():
                features: Array = np.ascontiguousarray(self._body.encoder(rest).numpy())
            return features.reshape(*shape, -1), allowed

        action = np.asarray(batch.decision["action"]).reshape(*shape, -1)
        next_inputs, allowed = split(batch.next_observation)
        return Rows(
            split(batch.observation)[0],
            next_inputs,
            action + self._branches[:-1],
            batch.reward,
            batch.discount,
            batch.weight,
            np.empty((*shape, 0), bool) if allowed is None else allowed.numpy().reshape(*shape, -1),
        )

    def _memory(self, rows: Rows) -> Work:
        total, threads, sizes = rows.reward.shape[1], self._num_threads, self._stack.sizes
        if total not in self._work:
            most = -(-total // threads)
            self._work[total] = Work(
                new_team(threads),
                np.empty((threads, kept_size(sizes, AHEAD * most)), np.float32),
                np.empty((threads, AHEAD * most * int(sizes[0])), np.float32),
                np.empty((threads, AHEAD, most * int(sizes[-1])), np.float32),
                np.empty((threads, 2, most * int(max(sizes))), np.float32),
            )
        return self._work[total]
