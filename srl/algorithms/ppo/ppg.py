"""PPG (Cobbe et al. 2021): PPO with phases in which the policy's layers learn to predict values, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Space
from srl.api.trainer import Trainer


@dataclass(frozen=True)
class PPGConfig(PPOConfig):
    """Phasic policy gradient, with one network: PPO whose critic learns on the actor's layers without changing them,
    and every `auxiliary_every` updates a phase over the batches since the last one, in which it does change them while
    the decisions are kept. These batches stay in the trainer's memory; checkpoints have them only with the inline
    scheduler."""

    towers: Literal["auto", "shared", "separate"] = "shared"
    """Actor and critic have all but their last layers in common; that is the point."""
    epochs: int = 2
    """Passes over each batch, outside of the auxiliary phase."""
    auxiliary_every: int = 16
    """Updates between two auxiliary phases."""
    auxiliary_epochs: int = 6
    """Passes over the batches of all these updates in an auxiliary phase."""
    clone_coefficient: float = 1.0
    """Weight of the divergence from the policy before the phase."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("auxiliary_every", "auxiliary_epochs")
        self._check_not_negative("clone_coefficient")
        if self.towers != "shared":
            raise ValueError(
                f"ppg lets actor and critic share their layers: towers must be shared, found {self.towers}"
            )

    def check(self, observation: Space, action: Space) -> None:
        super().check(observation, action)
        if self.network:
            from srl.algorithms.ppo.ppg_phase import detachable

            detachable(self.build_network(observation, action, seed=0)[0])

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.ppo.ppg_phase import AuxiliaryPhase
        from srl.algorithms.ppo.trainer import PPOTrainer

        network, distribution = self.build_network(observation, action, seed)
        return PPOTrainer(self, network, distribution, seed, AuxiliaryPhase(self, network, distribution))
