"""Q-learning from joint sequences of a team (Sunehag et al. 2018; Rashid et al. 2018, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.dqn.network import best_choices
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.trainer import TransitionTrainer
from srl.algorithms.qmix.config import VDNConfig
from srl.algorithms.qmix.losses import (
    JointSteps,
    continuing_agents,
    joint_targets,
    learned_rows,
    present_agents,
    team_reward,
)
from srl.algorithms.qmix.mixing import Mixer
from srl.algorithms.qmix.network import AgentNetwork
from srl.algorithms.training.devices import fetch, move
from srl.api.dataflow import SequenceBatch
from srl.base.tree import Array, Tree, map_tree

AGENTS, MIXER = "agents", "mixer"
MAX_ERROR_SHARE = 0.9
"""Weight of the largest error of a sequence in its priority; the mean error has the rest (Kapturowski et al. 2019)."""


class Rows(NamedTuple):
    """One minibatch of sequences: T = R + 1 rows of N = B * A lanes."""

    observation: Any  # tree of [T*N, ...]
    choice: Tensor  # [T, N, branches]: indices into the n values of all branches
    first: Tensor  # [T, N]
    state: Tensor | None  # [N, S]
    steps: JointSteps
    weight: Tensor  # [B]


class JointTrainer(TransitionTrainer):
    """Learns the values of joint actions, composed by the mixer of the values of the agents' actions. Policies need the
    agents' network only."""

    def __init__(self, config: VDNConfig, network: AgentNetwork, mixer: Mixer, seed: int) -> None:
        super().__init__(config, seed)
        self._network, self._mixer = network, mixer
        modules: dict[str, nn.Module] = {AGENTS: network}
        if any(True for _ in mixer.parameters()):
            modules[MIXER] = mixer
        kept = {"counters": self.counters}
        self.learner = ModuleLearner(modules, tuple(modules), config.device, config.adam_eps, kept)
        self.explore(0.0, learning=False)

    def explore(self, progress: float, learning: bool) -> None:
        config: VDNConfig = self.config
        epsilon = 1.0
        if learning:
            passed = min(1.0, progress / config.exploration_fraction) if config.exploration_fraction else 1.0
            epsilon = config.epsilon + (config.epsilon_final - config.epsilon) * passed
        self._network.epsilon.data.fill_(epsilon)

    def _gradient_steps(self, batch: Any, rate: float) -> tuple[dict[str, float], Array]:
        assert isinstance(batch, SequenceBatch)
        found: list[dict[str, Tensor]] = []
        errors = np.empty_like(batch.weight)
        for k in range(batch.num_steps):
            self.counters[1] += 1
            metrics, error = self._learn(self._rows(batch, k), batch.burn_in, rate)
            found.append(metrics)
            errors[k] = fetch(error).numpy()
        return {name: float(fetch(torch.stack([one[name] for one in found]).mean())) for name in found[0]}, errors

    def _rows(self, batch: SequenceBatch, k: int) -> Rows:
        device, num_teams = self.learner.device, batch.weight.shape[1]

        def pick(array: Array) -> Tensor:
            return move(array[k], device)

        def by_agent(array: Array) -> Tensor:
            return pick(array).view(array.shape[1], num_teams, -1)  # [T, B, A]

        nvec = self._network.nvec
        offsets = torch.tensor([sum(nvec[:i]) for i in range(len(nvec))], device=device)
        first = pick(batch.first)
        steps = JointSteps(*map(by_agent, (batch.reward, batch.terminated, batch.truncated, batch.acting, batch.valid)))
        return Rows(
            map_tree(lambda array: pick(array).flatten(0, 1), batch.observation),
            pick(np.asarray(batch.decision["action"])).view(*first.shape, -1) + offsets,
            first,
            pick(_state(batch)) if self._network.state_size else None,
            steps,
            pick(batch.weight),
        )

    def _learn(self, rows: Rows, burn_in: int, rate: float) -> tuple[dict[str, Tensor], Tensor]:
        """Make one gradient step. Return metrics and the priorities [B]."""
        config, learner = self.config, self.learner
        learned = learned_rows(rows.steps, burn_in)  # [R, B]
        count = learned.sum().double()
        learner.ranks.add(count)
        mean = learner.ranks.size / count.clamp(min=1.0)  # `descend` divides by the number of ranks
        seen, allowed = self._network.split(rows.observation)
        outputs = self._network.unroll(seen, rows.state, rows.first)  # [T, N, n]
        value = self._chosen(outputs, rows.choice, rows.steps)
        features = self._features(self._mixer, rows, slice(None, -1))
        total = self._mix(self._mixer, torch.where(rows.steps.acting, value, 0.0)[:-1], features)  # [R, B]
        with torch.no_grad():
            target = self._targets(rows, seen, allowed, outputs.detach(), learned)
        error = torch.where(learned, target - total, 0.0)
        loss = (error.square() * rows.weight).sum() * mean.float()
        loss.backward()  # type: ignore[no-untyped-call]
        for name in learner.flat:
            learner.descend(name, rate, config.max_grad_norm)
            if self.num_steps % config.target_update == 0:
                learner.follow(name, config.tau)
        absolute, share = error.detach().abs(), 1.0 / learned.sum().clamp(min=1)
        metrics = {
            "loss": loss.detach(),
            "epsilon": self._network.epsilon.detach()[0],  # of the policy that has acted
            "td_error": absolute.sum() * share,
            "q_value": torch.where(learned, total.detach(), 0.0).sum() * share,
        }
        averages = absolute.sum(0) / learned.sum(0).clamp(min=1)
        return metrics, MAX_ERROR_SHARE * absolute.amax(0) + (1.0 - MAX_ERROR_SHARE) * averages

    def _targets(self, rows: Rows, seen: Any, allowed: Tensor | None, outputs: Tensor, learned: Tensor) -> Tensor:
        """Return the targets [R, B]. Because the mixer is monotonic, the best joint action consists of the best actions
        of the agents (Rashid et al. 2018, eq. 4)."""
        config: VDNConfig = self.config
        network, mixer = self.learner.targets[AGENTS], self.learner.targets.get(MIXER, self._mixer)
        assert isinstance(network, AgentNetwork)
        assert isinstance(mixer, Mixer)
        future = network.unroll(seen, rows.state, rows.first)
        chooser = (outputs if config.double else future).flatten(0, 1)
        if allowed is not None:
            chooser = chooser.masked_fill(~allowed, -torch.inf)
        best = best_choices(chooser, self._network.nvec).view_as(rows.choice)
        continuing = continuing_agents(rows.steps)
        value = torch.where(continuing, self._chosen(future, best, rows.steps)[1:], 0.0)
        after = self._mix(mixer, value, self._features(mixer, rows, slice(1, None)))
        reward = team_reward(rows.steps, config.joint_reward)
        return joint_targets(reward, continuing.any(-1), after, learned, config.gamma, config.n_step)

    def _chosen(self, outputs: Tensor, choice: Tensor, steps: JointSteps) -> Tensor:
        """Return the values [T, B, A] of chosen actions; with several branches, their mean (Tavakoli et al. 2018)."""
        return outputs.gather(2, choice).mean(2).view_as(steps.reward)

    def _features(self, mixer: Mixer, rows: Rows, part: slice) -> Tensor | None:
        """Return the mixer's features of the state in some of the rows."""
        shape = rows.steps.acting.shape
        observation = map_tree(lambda x: x.view(*shape, *x.shape[1:])[part].flatten(0, 1), rows.observation)
        return mixer.encode(observation, present_agents(rows.steps)[part].flatten(0, 1))

    def _mix(self, mixer: Mixer, value: Tensor, features: Tensor | None) -> Tensor:
        total: Tensor = mixer(value.flatten(0, 1), features)
        return total.view(value.shape[:2])

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array:
        device, num_agents = self.learner.device, self.config.num_agents or 1
        inputs: Any = map_tree(lambda array: move(array, device), observation)
        size = self._network.state_size
        memory = [torch.zeros(len(first), size) if state is None else move(np.asarray(state), device)] if size else []
        with torch.no_grad():
            best = self._network(inputs, *memory)[1].view(-1, num_agents)
            by_team = map_tree(lambda part: part.view(-1, num_agents, *part.shape[1:]), inputs)
            features = self._mixer.encode(by_team, torch.ones_like(best, dtype=torch.bool))
            return fetch(self._mixer(best, features).repeat_interleave(num_agents)).numpy()

    def gradient_step(self, batch: Any, learning_rate: float) -> Any:
        raise NotImplementedError("the gradient steps are those of sequences")


def _state(batch: SequenceBatch) -> Array:
    if batch.state is None or isinstance(batch.state, Mapping):
        raise ValueError("a network with a memory needs sequences with the memory before them, as one array")
    state: Array = batch.state
    return state
