"""TD3 and DDPG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.config import TD3Config
from srl.algorithms.sac.losses import smoothed_action, td_target
from srl.algorithms.sac.networks import inner_actor
from srl.algorithms.sac.trainer import ACTOR, ReplayActorCriticTrainer

if TYPE_CHECKING:
    from srl.algorithms.sac.kernels import Settings


class TD3Trainer(ReplayActorCriticTrainer):
    """TD3 (Fujimoto et al. 2018, algorithm 1); DDPG is TD3 with one critic, without delay and smoothing."""

    config: TD3Config
    actor_has_target = True

    def explore(self, progress: float, learning: bool) -> None:
        inner_actor(self.network).explore(0.0 if learning else 1.0, self.config.exploration_noise)

    def compiled_settings(self, learning_rate: float) -> Settings:
        from srl.algorithms.sac.compiled import settings_of

        config = self.config
        return settings_of(
            config,
            learning_rate,
            num_valued=1 if config.target_critics is None else config.num_critics,
            smoothing=config.target_noise,
            smoothing_limit=config.target_noise_clip,
        )

    def critic_target(self, batch: Minibatch) -> Tensor:
        config = self.config
        action = unit_action(self.learner.targets[ACTOR], batch.next_observation)
        if config.target_noise > 0.0:
            action = smoothed_action(action, self.noise_like(action), config.target_noise, config.target_noise_clip)
        values = self.values(self.target_critics, batch.next_observation, action, self.target_members())
        return td_target(batch.reward, batch.discount, values.amin(0))

    def state_values(self, observation: Any) -> Tensor:
        return self.values(self.critics, observation, unit_action(self.network, observation)).amin(0)

    def for_actor(self, values: Tensor) -> Tensor:
        return values[0] if self.config.target_critics is None else values.mean(0)  # Fujimoto et al. 2018, algorithm 1

    def actor_loss(self, batch: Minibatch) -> tuple[Tensor, dict[str, Tensor]]:
        action = unit_action(self.network, batch.observation)
        value = self.for_actor(self.values(self.critics, batch.observation, action))
        return -value.mean(), {}


def unit_action(network: nn.Module, observation: Any) -> Tensor:
    """Return the deterministic actions [B, d], in units of the bounds."""
    raw: Tensor = network(observation)[0].chunk(2, dim=1)[0]
    return raw.tanh()
