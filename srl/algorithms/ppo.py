"""PPO (Schulman et al. 2017): its options. torch is imported only when something is built, so that naming an algorithm
on a command line or in a controller costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from srl.api.policy import Policy
from srl.api.spaces import Box, Space, array_spec
from srl.api.trainer import Trainer
from srl.base.tree import ArraySpec, TreeSpec
from srl.networks.support import check_action_space

if TYPE_CHECKING:
    from torch import nn

    from srl.networks.distributions import Distribution


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation with generalised advantages, for discrete, multi-discrete and box actions."""

    gamma: float = 0.99
    """Discount of the reward one step later."""
    gae_lambda: float = 0.95
    """0 trusts the critic (TD), 1 trusts the rewards (Monte Carlo)."""
    clip: float = 0.2
    """How far the probability ratio of an action may profit from moving away from 1."""
    learning_rate: float = 5e-4
    """Adam's step size at the start of the run."""
    anneal: bool = True
    """Let the learning rate fall linearly to 0 over the run."""
    epochs: int = 4
    """Passes over each batch."""
    num_minibatches: int = 16
    """Gradient steps per pass; the batch is cut into so many parts."""
    value_coefficient: float = 0.5
    """Weight of the critic's loss, half the squared error."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus; 0 for most continuous tasks."""
    max_grad_norm: float = 0.5
    """The gradient is scaled down to this norm."""
    normalize_advantage: bool = True
    """Scale the advantages of a batch (over all trainers) to mean 0 and deviation 1."""
    adam_eps: float = 1e-5
    """Added to the denominator of Adam."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Layers of the separate actor and critic for observations without images."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Between these layers."""
    network: str = ""
    """Your own network: `package.module:function` or `path/file.py:function`. The function gets the observation and the
    action space and returns a torch.nn.Module: observation tree [B, ...] -> (distribution parameters [B, n], value
    [B]). n: the logits of Discrete(n), of all choices of a MultiDiscrete, or means and then log-stds for a Box."""
    device: str = "auto"
    """Where trainers and policy workers compute: `auto` (cuda if torch sees one, else mps, else cpu), or a torch device
    such as `cpu`, `cuda`, `cuda:1`. With `auto` and `cuda`, policy workers take the first GPU, and each of several
    trainers its own as long as there are enough. Actors that decide themselves (inline inference) do so on the CPU."""

    def __post_init__(self) -> None:
        for name in ("epochs", "num_minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        for name in ("gamma", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be in [0, 1], found {getattr(self, name)}")
        for name in ("clip", "learning_rate", "max_grad_norm", "adam_eps"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be positive, found {getattr(self, name)}")

    def check(self, observation: Space, action: Space) -> None:
        check_action_space(action)
        if self.device not in ("auto", "cpu"):
            from srl.algorithms.devices import resolve_device

            resolve_device(self.device)
        if self.network:  # only then torch is imported in the controller: the user's own code may hold mistakes
            from srl.networks.flat import FlatParameters

            network, _ = self._build_network(observation, action, seed=0)
            FlatParameters(network, gradients=False)

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        # A Box action is kept as the network drew it, unclipped and in float32, whatever the space says.
        spec = ArraySpec(action.shape, "float32") if isinstance(action, Box) else array_spec(action)
        return {"action": spec, "log_prob": ArraySpec((), "float32"), "value": ArraySpec((), "float32")}

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        from srl.algorithms.torch_policy import TorchPolicy

        return TorchPolicy(*self._build_network(observation, action, seed), seed, self.device)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        from srl.algorithms.ppo_trainer import PPOTrainer

        return PPOTrainer(self, *self._build_network(observation, action, seed), seed)

    def _build_network(self, observation: Space, action: Space, seed: int) -> tuple[nn.Module, Distribution]:
        from srl.networks.build import NetworkConfig, build_network
        from srl.networks.distributions import distribution_for

        distribution = distribution_for(action)
        config = NetworkConfig(self.hidden_sizes, self.activation, self.network)
        return build_network(observation, action, distribution, config, seed), distribution
