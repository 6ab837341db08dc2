"""Trainers with an actor and an ensemble of critics, and the one of SAC for Box actions."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.normalization import NewObservations
from srl.algorithms.offpolicy.trainer import Minibatch, TransitionTrainer
from srl.algorithms.sac.config import ReplayActorCriticConfig, SACConfig
from srl.algorithms.sac.losses import (
    critic_loss,
    policy_loss,
    soft_value,
    squashed_sample,
    td_target,
    temperature_loss,
)
from srl.algorithms.sac.networks import Critics, Temperature, build_critics, inner_actor
from srl.algorithms.training.devices import fetch, move
from srl.api.dataflow import TransitionBatch
from srl.api.spaces import Box, Space
from srl.api.trainer import TrainerGroup
from srl.base.seeding import derive
from srl.base.tree import Array, Tree, map_tree
from srl.networks.distributions.action_scaling import finite_scaling

if TYPE_CHECKING:
    from srl.algorithms.sac.compiled import CompiledSteps
    from srl.algorithms.sac.kernels import Settings

ACTOR, CRITIC, TEMPERATURE = "actor", "critic", "temperature"


class ReplayActorCriticTrainer(TransitionTrainer):
    """Base class: one gradient step of the critics and, every `policy_delay` of them, one of the actor."""

    actor_has_target = False

    def __init__(self, config: ReplayActorCriticConfig, observation: Space, action: Space, seed: int) -> None:
        super().__init__(config, seed)
        self.network, self.distribution = config.build_network(observation, action, seed)
        self.critics = build_critics(observation, action, config, derive(seed, CRITIC))
        modules: dict[str, torch.nn.Module] = {ACTOR: self.network, CRITIC: self.critics, **self.other_modules()}
        targets = (ACTOR, CRITIC) if self.actor_has_target else (CRITIC,)
        self.explore(0.0, learning=config.learning_starts == 0)
        self.observations = NewObservations(modules.values())
        kept = {"counters": self.counters, **self.observations.state()}
        self.learner = ModuleLearner(modules, targets, config.device, config.adam_eps, kept)
        self.generator = torch.Generator(self.learner.device)
        self.scaling = finite_scaling(action) if isinstance(action, Box) else None
        self.compiled: CompiledSteps | None = None
        self._compile()

    def _compile(self) -> None:
        """Use compiled gradient steps if they support the networks. They implement the losses of a class that defines
        their settings itself; a subclass may have others."""
        from srl.algorithms.sac.compiled import CompiledSteps, supports  # imports numba

        if "compiled_settings" in vars(type(self)) and supports(self.network, self.critics, self.learner.device):
            self.compiled = CompiledSteps(self)

    def compiled_settings(self, learning_rate: float) -> Settings:
        raise NotImplementedError

    def join(self, group: TrainerGroup) -> None:
        super().join(group)
        self._compile()  # the tensors may be others

    def other_modules(self) -> dict[str, torch.nn.Module]:
        """Return further networks that learn."""
        return {}

    @abstractmethod
    def critic_target(self, batch: Minibatch) -> Tensor:
        """Return the target [B] of the critics. Called without gradients."""

    @abstractmethod
    def actor_loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of the actor, and metrics."""

    def explore(self, progress: float, learning: bool) -> None:
        inner_actor(self.network).explore(0.0 if learning else 1.0, 0.0)

    @property
    def target_critics(self) -> Critics:
        target = self.learner.targets[CRITIC]
        assert isinstance(target, Critics)
        return target

    def _gradient_steps(self, batch: TransitionBatch, rate: float) -> tuple[dict[str, float], Array]:
        if self.compiled is None:
            return super()._gradient_steps(batch, rate)
        return self.compiled.learn(batch, self.compiled_settings(rate))

    def gradient_step(self, batch: Minibatch, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        config, learner = self.config, self.learner
        self.seed_step()
        batch = self.prepare(batch)
        metrics, errors = self.critic_step(batch, learning_rate)
        if self.num_steps % config.policy_delay == 0:
            metrics |= self.actor_step(batch, learning_rate)
            if self.actor_has_target:
                learner.follow(ACTOR, config.tau)
                learner.follow(CRITIC, config.tau)
        if not self.actor_has_target:
            learner.follow(CRITIC, config.tau)
        return metrics, errors

    def seed_step(self) -> None:
        """Let the random numbers of this gradient step depend on the seed, its number and the rank only."""
        self.generator.manual_seed(derive(*self.counters.tolist(), self.learner.ranks.rank))

    def noise_like(self, tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, memory_format=torch.contiguous_format).normal_(generator=self.generator)

    def prepare(self, batch: Minibatch) -> Minibatch:
        """Convert Box actions [B, ...] to unit actions [B, d]."""
        if self.scaling is None:
            return batch
        return batch._replace(action=self.scaling.to_unit(batch.action.reshape(len(batch.action), -1)))

    def critic_step(self, batch: Minibatch, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        with torch.no_grad():
            target = self.critic_target(batch)
        values = self.taken_values(batch)
        loss = critic_loss(values, target, batch.weight)
        regularizer, metrics = self.critic_regularizer(batch, values)
        (loss if regularizer is None else loss + regularizer).backward()  # type: ignore[no-untyped-call]
        self.learner.descend(CRITIC, learning_rate, self.config.max_grad_norm)
        with torch.no_grad():
            errors = (values - target).abs_().mean(0)
            return {"critic_loss": loss.detach(), "value": values.mean(), **metrics}, errors

    def critic_regularizer(self, batch: Minibatch, values: Tensor) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Return a further loss of the critics and metrics, given the values [E, B] of the actions in the batch."""
        return None, {}

    def taken_values(self, batch: Minibatch) -> Tensor:
        """Return the values [E, B] of the actions in the batch."""
        return self.values(self.critics, batch.observation, batch.action)

    def values(
        self, critics: Critics, observation: Any, action: Tensor | None, members: Tensor | None = None
    ) -> Tensor:
        result: Tensor = critics(observation, action, members, self.generator)
        return result

    def state_values(self, observation: Any) -> Tensor:
        """Return the values [B] of the policy's actions, for checks."""
        raise NotImplementedError

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array:
        with torch.no_grad():
            inputs = map_tree(lambda array: move(array, self.learner.device), observation)
            return fetch(self.state_values(inputs)).numpy()

    def target_members(self) -> Tensor | None:
        """Draw the critics whose lowest value is the target (REDQ, Chen et al. 2021, algorithm 1); None: all."""
        config = self.config
        if config.target_critics is None:
            return None
        order = torch.randperm(config.num_critics, generator=self.generator, device=self.learner.device)
        return order[: config.target_critics]

    def for_actor(self, values: Tensor) -> Tensor:
        """Reduce values [E, ...] to what the actor maximizes."""
        config = self.config
        is_lowest = config.target_critics is None and not config.critic_dropout  # not REDQ, nor DroQ
        return values.amin(0) if is_lowest else values.mean(0)

    def actor_step(self, batch: Minibatch, learning_rate: float) -> dict[str, Tensor]:
        learned = [parameter for parameter in self.critics.parameters() if parameter.requires_grad]
        self.critics.requires_grad_(False)
        try:
            loss, metrics = self.actor_loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            for parameter in learned:
                parameter.requires_grad_(True)
        self.learner.descend(ACTOR, learning_rate, self.config.max_grad_norm)
        return {"actor_loss": loss.detach(), **metrics}


class SoftTrainer(ReplayActorCriticTrainer):
    """Base class of trainers with a temperature, the weight of the policy's entropy."""

    config: SACConfig

    def __init__(self, config: SACConfig, observation: Space, action: Space, seed: int) -> None:
        self.temperature = Temperature(config.initial_temperature)
        self.target_entropy = config.entropy_target(action)
        super().__init__(config, observation, action, seed)

    def other_modules(self) -> dict[str, torch.nn.Module]:
        return {TEMPERATURE: self.temperature}

    def current_temperature(self) -> Tensor:
        return self.temperature.log_value.detach().exp()

    def learn_temperature(self, entropy: Tensor, learning_rate: float) -> None:
        """Move the temperature, given entropies [B] of the policy."""
        if self.config.learn_temperature:
            loss = temperature_loss(self.temperature.log_value, entropy.detach(), self.target_entropy)
            loss.backward()  # type: ignore[no-untyped-call]
            self.learner.descend(TEMPERATURE, learning_rate)

    def actor_step(self, batch: Minibatch, learning_rate: float) -> dict[str, Tensor]:
        metrics = super().actor_step(batch, learning_rate)
        temperature = self.current_temperature()
        self.learn_temperature(metrics["entropy"], learning_rate)
        return {**metrics, "temperature": temperature[0]}


class Sample(NamedTuple):
    action: Tensor  # [B, d], in units of the bounds
    log_prob: Tensor  # [B]


class SACTrainer(SoftTrainer):
    """SAC for Box actions (Haarnoja et al. 2018, algorithm 1)."""

    def compiled_settings(self, learning_rate: float) -> Settings:
        from srl.algorithms.sac.compiled import settings_of

        config = self.config
        return settings_of(
            config,
            learning_rate,
            is_gaussian=True,
            num_valued=config.num_critics,
            learn_temperature=config.learn_temperature,
            target_entropy=self.target_entropy,
        )

    def sample(self, observation: Any) -> Sample:
        mean, log_std = self.network(observation)[0].chunk(2, dim=1)
        return Sample(*squashed_sample(mean, log_std, self.noise_like(mean)))

    def critic_target(self, batch: Minibatch) -> Tensor:
        after = self.sample(batch.next_observation)
        values = self.values(self.target_critics, batch.next_observation, after.action, self.target_members())
        value = soft_value(values, after.log_prob, self.current_temperature())
        return td_target(batch.reward, batch.discount, value)

    def state_values(self, observation: Any) -> Tensor:
        own = self.sample(observation)
        return soft_value(self.values(self.critics, observation, own.action), own.log_prob, self.current_temperature())

    def actor_loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        own = self.sample(batch.observation)
        value = self.for_actor(self.values(self.critics, batch.observation, own.action))
        loss = policy_loss(value, own.log_prob, self.current_temperature())
        return loss, {"entropy": own.log_prob.detach().mean().neg()}
