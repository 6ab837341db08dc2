"""Q-learning from replayed transitions (Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from srl.algorithms.dqn.compiled import CompiledSteps, supports
from srl.algorithms.dqn.config import DQNConfig
from srl.algorithms.dqn.network import QNetwork, best_choices
from srl.algorithms.dqn.noisy import noisy_layers
from srl.algorithms.dqn.passes import build_body_pass
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.normalization import NewObservations
from srl.algorithms.offpolicy.threads import RowThreads
from srl.algorithms.offpolicy.trainer import TransitionTrainer
from srl.algorithms.training.devices import fetch, move
from srl.api.dataflow import TransitionBatch
from srl.api.trainer import TrainerGroup
from srl.base.seeding import derive
from srl.base.tree import Array, from_leaves, leaves, map_tree

NETWORK = "q"


class Rows(NamedTuple):
    """Transitions of one or more minibatches, [N, ...] each."""

    inputs: Any
    next_inputs: Any
    choice: Tensor  # [N, branches, K]: the chosen actions, as indices into the outputs
    reward: Tensor
    discount: Tensor
    weight: Tensor  # [N, 1, 1]: importance weights, divided by the size of a minibatch
    allowed: Tensor | None  # [N, n]: choices that are possible in the next observation

    def split(self, size: int) -> Iterator[Rows]:
        inputs, next_inputs = (_split(tree, size) for tree in (self.inputs, self.next_inputs))
        fixed = (self.choice, self.reward, self.discount, self.weight)
        tensors = zip(*(torch.split(tensor, size) for tensor in fixed), strict=True)
        allowed = [None] * len(inputs) if self.allowed is None else torch.split(self.allowed, size)
        for one, after, (choice, reward, discount, weight), mask in zip(
            inputs, next_inputs, tensors, allowed, strict=True
        ):
            yield Rows(one, after, choice, reward, discount, weight, mask)


class DQNTrainer(TransitionTrainer):
    """Q-learning with a target network.

    The target network is constant between its updates, so that it evaluates the next observations of several
    minibatches at once. The result is the same as one by one. The actions of double Q-learning are chosen at each
    gradient step, with the parameters of that step.
    """

    def __init__(self, config: DQNConfig, network: QNetwork, seed: int) -> None:
        super().__init__(config, seed)
        self._network = network
        self.observations = NewObservations([network])
        kept = {"counters": self.counters, **self.observations.state()}
        self.learner = ModuleLearner({NETWORK: network}, (NETWORK,), config.device, config.adam_eps, kept)
        self._prepare()
        self.explore(0.0, learning=False)

    def _prepare(self) -> None:
        """Build what holds tensors on the learner's device."""
        target = self.learner.targets[NETWORK]
        assert isinstance(target, QNetwork)
        precision = self.config.precision
        self._threads = RowThreads(self.config.update_threads)
        self._pass = build_body_pass(self._network.body, precision, self._threads)
        self._target_pass = build_body_pass(target.body, precision, self._threads)
        self._noisy = [*noisy_layers(self._network), *noisy_layers(target)]
        nvec = self._network.nvec
        self._offsets = torch.tensor([sum(nvec[:i]) for i in range(len(nvec))], device=self.learner.device)
        self.compiled: CompiledSteps | None = None
        if precision == "float32" and supports(self._network, self.learner.device) and self.learner.ranks.size == 1:
            self.compiled = CompiledSteps(self.learner, NETWORK, self._network, self.config.update_threads)

    def join(self, group: TrainerGroup) -> None:
        super().join(group)
        self._prepare()

    def explore(self, progress: float, learning: bool) -> None:
        config: DQNConfig = self.config
        self._network.epsilon.data.fill_(config.epsilon_at(progress) if learning else 1.0)

    def _gradient_steps(self, batch: TransitionBatch, rate: float) -> tuple[dict[str, float], Array]:
        if self.compiled is not None:
            results = self.compiled.learn(batch, self.config, rate, self.num_steps + 1)
            self.counters[1] += batch.num_steps
            means = {"td_error": float(results.errors.mean()), "q_value": float(results.values.mean())}
            return {**means, "epsilon": float(self._network.epsilon)}, results.errors
        chosen: list[Tensor] = []
        errors: list[Tensor] = []
        start, num_steps, num_rows = 0, batch.num_steps, batch.reward.shape[1]
        with self._threads.running():
            while start < num_steps:
                end = min(num_steps, start + self._steps_per_chunk(num_rows))
                self._learn(self._rows(batch, start, end), num_rows, rate, chosen, errors)
                start = end
        error = torch.stack(errors)  # [K, B]
        metrics = {"td_error": error.mean(), "q_value": self._network.returns.expectation(torch.stack(chosen)).mean()}
        metrics["epsilon"] = self._network.epsilon  # of the policy that has acted
        return {name: float(fetch(value)) for name, value in metrics.items()}, fetch(error).numpy()

    def _steps_per_chunk(self, num_rows: int) -> int:
        """Return the number of minibatches whose targets can be computed at once."""
        if self._noisy:
            return 1  # each gradient step has its own noise
        period: int = self.config.target_update
        return min(period - self.num_steps % period, max(1, self._pass.rows_at_once // num_rows))

    def _rows(self, batch: TransitionBatch, start: int, end: int) -> Rows:
        def pick(array: Array) -> Tensor:
            flat = array[start:end].reshape(-1, *array.shape[2:])
            return move(flat, self.learner.device)

        choice = pick(_array(batch.decision["action"])).view(-1, len(self._network.nvec), 1) + self._offsets[:, None]
        num_atoms = self._network.returns.num_atoms
        rest, _ = self._network.split(map_tree(pick, batch.observation))
        next_rest, allowed = self._network.split(map_tree(pick, batch.next_observation))
        return Rows(
            self._pass.encode(rest),
            self._pass.encode(next_rest),
            choice.expand(-1, -1, num_atoms),
            pick(batch.reward),
            pick(batch.discount),
            pick(batch.weight)[:, None, None] / batch.reward.shape[1],
            allowed,
        )

    def _learn(self, rows: Rows, num_rows: int, rate: float, chosen: list[Tensor], errors: list[Tensor]) -> None:
        """Make one gradient step for each minibatch of `num_rows` rows. Append the outputs for the chosen actions and
        the absolute errors."""
        config: DQNConfig = self.config
        returns, double = self._network.returns, config.double
        self._resample()
        future = self._target_pass.evaluate(rows.next_inputs)  # [N, n, K]
        targets = None if double else torch.split(self._targets(future, future, rows), num_rows)
        futures = torch.split(future, num_rows)
        for k, own in enumerate(rows.split(num_rows)):
            outputs, after = self._pass.forward(own.inputs, own.next_inputs if double else None)
            if targets is not None:
                target = targets[k]
            else:
                assert after is not None
                target = self._targets(after, futures[k], own)
            found = outputs.gather(1, own.choice)
            slope = returns.compare(found, target)
            gradient = torch.zeros_like(outputs).scatter_(1, own.choice, slope.gradient.mul_(own.weight))
            self._pass.backward(gradient)
            self.learner.descend(NETWORK, rate, config.max_grad_norm)
            self.counters[1] += 1
            if self.num_steps % config.target_update == 0:
                self.learner.follow(NETWORK, config.tau)
            chosen.append(found)
            errors.append(slope.error)

    def _targets(self, chooser: Tensor, evaluator: Tensor, rows: Rows) -> Tensor:
        """Return the targets [N, K]. The outputs of `chooser` determine the next actions, those of `evaluator` their
        returns (van Hasselt et al. 2016, eq. 4)."""
        returns = self._network.returns
        values = returns.expectation(chooser)
        if rows.allowed is not None:
            values = values.masked_fill(~rows.allowed, -torch.inf)
        best = best_choices(values, self._network.nvec)[:, :, None]
        future = evaluator.gather(1, best.expand(-1, -1, returns.num_atoms))
        return returns.target(future, rows.reward, rows.discount)

    def _resample(self) -> None:
        """Draw the noise of this gradient step. It is determined by the seed, the step and the rank."""
        if self._noisy:
            seed = derive(int(self.counters[0]), "noise", self.num_steps, self.learner.ranks.rank)
            generator = torch.Generator(self.learner.device).manual_seed(seed)
            for layer in self._noisy:
                layer.resample(generator)

    def gradient_step(self, batch: Any, learning_rate: float) -> Any:
        raise NotImplementedError("Q-learning makes the gradient steps of several minibatches together")


def _array(tree: Any) -> Array:
    array: Array = tree
    return array


def _split(tree: Any, size: int) -> list[Any]:
    if isinstance(tree, Tensor):
        return list(torch.split(tree, size))
    parts = {path: torch.split(leaf, size) for path, leaf in leaves(tree)}
    number = len(next(iter(parts.values())))
    return [from_leaves({path: pieces[k] for path, pieces in parts.items()}) for k in range(number)]
