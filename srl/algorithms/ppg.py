"""PPG (Cobbe et al. 2021): PPO with auxiliary phases in which the policy's layers also learn to predict values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Space
from srl.api.trainer import Trainer


@dataclass(frozen=True)
class PPGConfig(PPOConfig):
    """Phasic policy gradient with a single network. Between phases it is PPO, except that the critic's loss does not
    change the layers it shares with the actor. Every `auxiliary_every` updates, a phase over the batches since the last
    one trains these layers to predict values, while a penalty preserves the policy. The batches stay in the trainer's
    memory; checkpoints contain them only with the inline scheduler."""

    towers: Literal["auto", "shared", "separate"] = "shared"
    """Must be `shared`: actor and critic share all but their last layers."""
    epochs: int = 2
    """Passes over each batch outside the auxiliary phase."""
    auxiliary_every: int = 16
    """Number of updates between auxiliary phases."""
    auxiliary_epochs: int = 6
    """Passes in each auxiliary phase over the batches since the last one."""
    clone_coefficient: float = 1.0
    """Weight of the KL divergence from the policy before the phase."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_counts("auxiliary_every", "auxiliary_epochs")
        self._check_not_negative("clone_coefficient")
        if self.towers != "shared":
            raise ValueError(f"towers must be 'shared': ppg's actor and critic share layers; found {self.towers!r}")

    def check(self, observation: Space, action: Space) -> None:
        super().check(observation, action)
        if self.network:
            self.build_network(observation, action, seed=0)[0].detach_value(True)  # ValueError if it cannot

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.ppo.ppg_phase import AuxiliaryPhase
        from srl.algorithms.ppo.trainer import PPOTrainer

        network, distribution = self.build_network(observation, action, seed)
        return PPOTrainer(self, network, distribution, seed, AuxiliaryPhase(self, network, distribution))
