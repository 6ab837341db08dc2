"""Gradient steps of SAC, TD3 and DDPG in compiled code, for actors and critics of dense layers on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from srl.algorithms.offpolicy.threads import in_threads, new_team, stack_of
from srl.algorithms.sac.config import ReplayActorCriticConfig
from srl.algorithms.sac.kernels import (
    ACTOR_LOSS,
    CRITIC_LOSS,
    ENTROPY,
    NUM_SUMS,
    VALUE,
    Results,
    Rows,
    Settings,
    Work,
    actor_gradients,
    critic_gradients,
    learn,
)
from srl.algorithms.sac.networks import Actor, Critics, StackedLayers, inner_actor
from srl.api.dataflow import TransitionBatch
from srl.base.blas import limit_blas_threads
from srl.base.tree import Array, map_tree
from srl.networks.dense_kernels import kept_size

if TYPE_CHECKING:
    from srl.algorithms.sac.trainer import ReplayActorCriticTrainer

ACTOR, CRITIC, TEMPERATURE = "actor", "critic", "temperature"


def supports(network: nn.Module, critics: Critics, device: torch.device) -> bool:
    """Return whether only dense layers learn, whose inputs need no gradient."""
    if device.type != "cpu" or not (isinstance(network, Actor) and network.kind in ("gaussian", "noisy")):
        return False
    encoders = [*network.encoder.parameters(), *critics.encoder.parameters()]
    learned = any(parameter.requires_grad for parameter in encoders)
    return not learned and not critics.layers.dropout and not len(critics.layers.gains)


def settings_of(config: ReplayActorCriticConfig, rate: float, **own: Any) -> Settings:
    return Settings(
        is_tanh=config.activation == "tanh",
        of_lowest=config.target_critics is None,
        policy_delay=config.policy_delay,
        tau=config.tau,
        rate=rate,
        eps=config.adam_eps,
        max_norm=config.max_grad_norm or 0.0,
        **own,
    )


class CompiledSteps:
    """Gradient steps of a trainer: its networks as flat vectors, on which compiled code works, and its memory."""

    def __init__(self, trainer: ReplayActorCriticTrainer) -> None:
        limit_blas_threads()
        self._trainer, self._learner = trainer, trainer.learner
        self._num_threads: int = trainer.config.update_threads
        self._encoders = inner_actor(trainer.network).encoder, trainer.critics.encoder
        actor, critics = inner_actor(trainer.network).layers, trainer.critics.layers
        self._actor = stack_of(trainer.learner, ACTOR, _pairs(actor), self._num_threads)
        self._critics = stack_of(trainer.learner, CRITIC, _pairs(critics), self._num_threads)
        self._temperature = stack_of(trainer.learner, TEMPERATURE, [], self._num_threads)
        self._work: dict[int, Work] = {}  # by the number of rows

    def learn(self, batch: TransitionBatch, settings: Settings) -> tuple[dict[str, float], Array]:
        """Make a gradient step for each minibatch. Return metrics and absolute errors [K, B]."""
        first = self._trainer.num_steps + 1
        rows, results = self._rows(batch, settings), self._results(batch)
        work, stacks = self._memory(rows, settings), (self._actor, self._critics, self._temperature)
        if self._learner.ranks.size == 1:
            in_threads(self._num_threads, lambda part: learn(part, first, *stacks, rows, settings, work, results))
        else:
            for k in range(batch.num_steps):
                self._learn_with_ranks(k, (first + k) % settings.policy_delay == 0, rows, settings, work, results)
        self._learner.copy_constants()
        return self._metrics(first, settings, results), results.errors

    def _learn_with_ranks(
        self, k: int, with_actor: bool, rows: Rows, settings: Settings, work: Work, results: Results
    ) -> None:
        """Make one gradient step, with the mean gradient of all ranks."""
        learner, rate, limit = self._learner, settings.rate, settings.max_norm or None
        temperature = math.exp(self._temperature.values[0]) if settings.is_gaussian else 0.0
        shared: Any = (self._actor, self._critics, temperature, rows, settings, work, results)
        self._collect(CRITIC, rows, lambda part, low, high: critic_gradients(part, k, low, high, with_actor, *shared))
        learner.descend(CRITIC, rate, limit)
        if settings.is_gaussian or with_actor:
            learner.follow(CRITIC, settings.tau)
        if with_actor:
            self._collect(ACTOR, rows, lambda part, low, high: actor_gradients(part, k, low, high, *shared))
            learner.descend(ACTOR, rate, limit)
            if not settings.is_gaussian:
                learner.follow(ACTOR, settings.tau)
            elif settings.learn_temperature:
                entropy = results.sums[:, k, ENTROPY].sum() / rows.reward.shape[1]
                learner.flat[TEMPERATURE].gradients.fill_(entropy - settings.target_entropy)
                learner.descend(TEMPERATURE, rate)
            results.temperature[k] = temperature

    def _collect(self, name: str, rows: Rows, call: Callable[[int, int, int], object]) -> None:
        """Let all threads write the gradients of their rows, and put their sum into the learner's vector."""
        num_rows, threads = rows.reward.shape[1], self._num_threads
        in_threads(threads, lambda part: call(part, part * num_rows // threads, (part + 1) * num_rows // threads))
        parts = self._actor.gradients if name == ACTOR else self._critics.gradients
        np.sum(parts, 0, out=self._learner.flat[name].gradients.numpy())

    def _rows(self, batch: TransitionBatch, settings: Settings) -> Rows:
        trainer, (num_steps, num_rows) = self._trainer, batch.reward.shape

        def flat(array: Array) -> torch.Tensor:
            return torch.from_numpy(array.reshape(num_steps * num_rows, *array.shape[2:]))

        def features(encoder: nn.Module, observation: Any) -> Array:
            with torch.no_grad():
                return np.ascontiguousarray(encoder(observation).numpy()).reshape(num_steps, num_rows, -1)

        before, after = (map_tree(flat, tree) for tree in (batch.observation, batch.next_observation))
        assert trainer.scaling is not None
        action: Array = trainer.scaling.to_unit(flat(_array(batch.decision["action"])).flatten(1)).numpy()
        action = action.reshape(num_steps, num_rows, -1)
        actor, critic = self._encoders
        return Rows(
            features(actor, before),
            features(actor, after),
            features(critic, before),
            features(critic, after),
            action,
            batch.reward,
            batch.discount,
            batch.weight,
            *self._draws(action, settings),
        )

    def _draws(self, action: Array, settings: Settings) -> tuple[Array, Array, Array]:
        """Return noise for the actions after both observations, and the critics of the targets, in the order in which
        autograd's steps draw them. Count the gradient steps."""
        trainer = self._trainer
        noise, noise_next = np.zeros((2, *action.shape), np.float32)
        everyone = np.arange(self._critics.num_members)
        members = []
        for k in range(len(action)):
            trainer.counters[1] += 1
            trainer.seed_step()
            if settings.is_gaussian or settings.smoothing > 0.0:
                torch.from_numpy(noise_next[k]).normal_(generator=trainer.generator)
            chosen = trainer.target_members()
            members.append(everyone if chosen is None else chosen.numpy())
            if settings.is_gaussian and trainer.num_steps % settings.policy_delay == 0:
                torch.from_numpy(noise[k]).normal_(generator=trainer.generator)
        return noise, noise_next, np.array(members)

    def _memory(self, rows: Rows, settings: Settings) -> Work:
        total, threads = rows.reward.shape[1], self._num_threads
        if total not in self._work:
            actor, critics, most = self._actor.sizes, self._critics.sizes, -(-total // threads)
            kept = kept_size(actor, 2 * most) + (settings.num_valued + 1) * kept_size(critics, most)
            inputs = most * (2 * rows.actor.shape[2] + rows.critic.shape[2] + rows.action.shape[2])
            widest = most * int(max(*actor, *critics))
            self._work[total] = Work(
                new_team(threads),
                np.empty((threads, kept), np.float32),
                np.empty((threads, inputs), np.float32),
                np.empty((threads, 2, widest), np.float32),
            )
        return self._work[total]

    def _results(self, batch: TransitionBatch) -> Results:
        sums = np.zeros((self._num_threads, batch.num_steps, NUM_SUMS))
        return Results(np.zeros(batch.reward.shape, np.float32), sums, np.zeros(batch.num_steps))

    def _metrics(self, first: int, settings: Settings, results: Results) -> dict[str, float]:
        means = results.sums.sum(0) / results.errors.shape[1]  # [K, NUM_SUMS]
        metrics = {"critic_loss": float(means[:, CRITIC_LOSS].mean()), "value": float(means[:, VALUE].mean())}
        acted = (first + np.arange(len(means))) % settings.policy_delay == 0
        if acted.any():
            metrics["actor_loss"] = float(means[acted, ACTOR_LOSS].mean())
            if settings.is_gaussian:
                metrics["entropy"] = float(means[acted, ENTROPY].mean())
                metrics["temperature"] = float(results.temperature[acted].mean())
        return metrics


def _pairs(layers: StackedLayers) -> list[tuple[nn.Parameter, nn.Parameter]]:
    return list(zip(layers.weights, layers.biases, strict=True))


def _array(tree: Any) -> Array:
    array: Array = tree
    return array
