"""A custom algorithm: advantage actor-critic (A2C, Mnih et al. 2016), complete in one file.

An algorithm is a config that builds a policy and a trainer for a pair of spaces. The policy decides in actors or policy
workers, the trainer learns. They share only a flat vector of parameters.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

import srl
from srl.algorithms.returns.gae import generalized_advantages
from srl.algorithms.training.learner import FlatAdam
from srl.algorithms.training.ranks import Ranks
from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import Decision, Policy
from srl.api.spaces import Box, Discrete, Space, array_spec
from srl.api.trainer import Trainer, TrainerGroup, TrainResult, Trajectory
from srl.base.state import State
from srl.base.tree import Array, Tree, TreeSpec
from srl.networks.parameters import FlatParameters


@dataclass(frozen=True)
class A2CConfig(AlgorithmConfig):
    """Plain data: it is sent to the workers as JSON and stored in the run's config.json."""

    gamma: float = 0.99
    gae_lambda: float = 0.95
    learning_rate: float = 3e-3
    entropy_coefficient: float = 0.01
    hidden_size: int = 64

    def check(self, observation: Space, action: Space) -> None:
        if not (isinstance(observation, Box) and len(observation.shape) == 1 and isinstance(action, Discrete)):
            raise ValueError(f"expected a Box [n] and a Discrete action; found {observation} and {action}")

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        """The arrays of one lane's decision, which are stored beside the observation. Here, only the action."""
        return {"action": array_spec(action)}

    def build_policy(self, observation: Space, action: Space, seed: int) -> A2CPolicy:
        return A2CPolicy(self._network(observation, action, seed), seed)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> A2CTrainer:
        return A2CTrainer(self, self._network(observation, action, seed))

    def discount(self) -> float:
        """Optional: `srl check-algo` asks for it, because values depend on it."""
        return self.gamma

    def _network(self, observation: Space, action: Space, seed: int) -> ActorCritic:
        assert isinstance(observation, Box)
        assert isinstance(action, Discrete)
        torch.manual_seed(seed)
        return ActorCritic(observation.shape[0], self.hidden_size, action.n)


class ActorCritic(nn.Module):
    def __init__(self, num_features: int, hidden_size: int, num_actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(num_features, hidden_size), nn.Tanh())
        self.actor = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, num_actions))
        self.critic = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, 1))

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(observation)
        return self.actor(hidden), self.critic(hidden)[..., 0]  # logits [..., n], value [...]


class A2CPolicy(Policy):
    def __init__(self, network: ActorCritic, seed: int) -> None:
        self._network = network
        self._flat = FlatParameters(network, gradients=False)
        self._generator = torch.Generator().manual_seed(seed)

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with torch.inference_mode():
            logits, _ = self._network(torch.from_numpy(np.array(observation)))  # [B, n]
            if greedy:
                return {"action": logits.argmax(1).numpy()}
            drawn = torch.multinomial(logits.softmax(1), 1, generator=self._generator)
            return {"action": drawn[:, 0].numpy()}  # [B]

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(torch.from_numpy(parameters))
        self.version = version

    def state(self) -> State:
        """Optional, as is `restore`: runs with `--scheduler inline` then resume exactly."""
        return {"generator": self._generator.get_state().numpy()}

    def restore(self, state: State) -> None:
        self._generator.set_state(torch.from_numpy(state["generator"]))


class A2CTrainer(Trainer):
    def __init__(self, config: A2CConfig, network: ActorCritic) -> None:
        self._config = config
        self._network = network
        self._flat = FlatParameters(network, gradients=True)  # parameters and gradients: one vector each
        self._adam = FlatAdam(self._flat.values, eps=1e-5)
        self._ranks = Ranks()

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        config = self._config
        logits, value = self._network(torch.from_numpy(np.array(batch.observation)))  # [T+1, B, n], [T+1, B]
        advantage = generalized_advantages(
            batch.reward,
            value.detach().numpy(),
            batch.terminated,
            batch.truncated,
            batch.acting,
            config.gamma,
            config.gae_lambda,
        )  # [T, B]
        # Learn only from rows with a decision: the last observation of an episode has its own row without one.
        acted = torch.from_numpy(batch.acting[:-1].copy())
        count = torch.tensor(float(batch.num_decisions))
        self._ranks.add(count)  # over all data-parallel trainers; a single one changes nothing
        log_probs = logits[:-1][acted].log_softmax(1)  # [N, n]
        action = torch.from_numpy(np.asarray(batch.decision["action"])[:-1])[acted]  # [N]
        gain = torch.from_numpy(advantage)[acted]
        target = gain + value.detach()[:-1][acted]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        policy_loss = -(log_probs.gather(1, action[:, None])[:, 0] * gain).sum() / count
        value_loss = 0.5 * (value[:-1][acted] - target).square().sum() / count
        entropy = -(log_probs.exp() * log_probs).sum() / count
        self._flat.gradients.zero_()
        (policy_loss + 0.5 * value_loss - config.entropy_coefficient * entropy).backward()
        self._ranks.add(self._flat.gradients)
        norm = self._flat.gradients.norm()
        if not torch.isfinite(norm):
            return TrainResult(int(count), skipped=True)  # a NaN never reaches the weights
        self._flat.gradients.mul_(0.5 / norm.clamp(min=0.5))
        self._adam.step(self._flat.gradients, config.learning_rate * (1.0 - progress))
        metrics = {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "entropy": entropy.item()}
        return TrainResult(int(count), metrics)

    def parameters(self) -> Array:
        return self._flat.values.numpy()

    def state(self) -> Mapping[str, Array]:
        """`srl.load` reads the `parameters`; with the rest, a killed trainer continues exactly where it was."""
        return {name: tensor.numpy() for name, tensor in self._adam.tensors().items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        for name, array in self.state().items():
            array[...] = state[name]

    def join(self, group: TrainerGroup) -> None:
        self._ranks.join(group)
        self._ranks.copy_first(self._adam.tensors().values())


if __name__ == "__main__":  # worker processes import this file to find the classes above
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()
    # The same from a command line: srl train CartPole-v1 --algo examples/own_algorithm.py:A2CConfig
    run = srl.train(
        "CartPole-v1", algo=A2CConfig(), lanes=32, horizon=16, steps=arguments.steps, root=arguments.root, verbose=True
    )
    result = srl.evaluate(run.path, episodes=16)
    print(f"greedy return {result.mean:.1f} (the best possible is 500)")
