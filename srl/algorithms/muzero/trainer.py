"""MuZero's gradient steps: the model is unrolled along recorded actions (Schrittwieser et al. 2020, appendix G)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.algorithms.alphazero.config import TO_PLAY
from srl.algorithms.muzero.config import MuZeroConfig
from srl.algorithms.muzero.network import Consistency, MuZeroNetwork, build_consistency
from srl.algorithms.muzero.samples import SampledActions, entropy, log_probability
from srl.algorithms.muzero.targets import bin_loss, for_movers, windows
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.normalization import NewObservations
from srl.algorithms.offpolicy.trainer import TransitionTrainer
from srl.algorithms.training.devices import fetch, move
from srl.api.dataflow import SequenceBatch
from srl.base.seeding import generator
from srl.base.tree import Array, Tree, map_tree

NETWORK, CONSISTENCY = "model", "consistency"


class Window(NamedTuple):
    """Tensors of N windows of K steps; places are k = 0 to K. See `srl.algorithms.muzero.targets.Windows`."""

    observation: Any  # tree of [(K+1) * N, ...]: of each place, without masks
    future: Any  # tree of [M, ...]: observations to bootstrap from, each once
    future_of: Tensor  # [K+1, N]: index into `future`
    action: Tensor  # [K, N]; [K, N, size] with sampled actions
    reward: Tensor  # [K, N]
    has_reward: Tensor  # [K, N] float32
    has_value: Tensor  # [K+1, N] float32
    has_policy: Tensor  # [K+1, N] float32
    policy: Tensor  # [K+1, N, A]
    sampled: Tensor | None  # [K+1, N, A, size]: the actions that `policy` has weights of
    total: Tensor  # [K+1, N]
    discount: Tensor  # [K+1, N]
    root_value: Tensor | None  # [K+1, N]: of the searches in the rows to bootstrap from; NaN where there was none
    weight: Tensor  # [N]


class MuZeroTrainer(TransitionTrainer):
    """Learns representation, dynamics and predictions together."""

    def __init__(self, config: MuZeroConfig, network: MuZeroNetwork, seed: int, actions: SampledActions) -> None:
        super().__init__(config, seed)
        self._network = network
        self._samples, self._actions = network.model.samples, actions
        self._consistency: Consistency | None = None
        modules: dict[str, nn.Module] = {NETWORK: network}
        if config.consistency_weight:
            self._consistency = modules[CONSISTENCY] = build_consistency(config, seed)
        self.observations = NewObservations([network])
        kept = {"counters": self.counters, **self.observations.state()}
        self.learner = ModuleLearner(modules, (NETWORK,), config.device, config.adam_eps, kept)

    def explore(self, progress: float, learning: bool) -> None:
        config: MuZeroConfig = self.config
        self._network.temperature.data.fill_(config.temperature_at(progress))

    def minibatch(self, batch: SequenceBatch, k: int, device: torch.device) -> Window:
        config: MuZeroConfig = self.config
        places, num_lanes = config.unroll + 1, batch.first.shape[2]
        decision: Any = batch.decision
        random = generator(int(self.counters[0]), "absorbing", self.num_steps)
        num_actions, taken = self._network.model.num_actions, decision["action"][k]
        cut = windows(
            np.zeros(batch.reward[k].shape, np.int64) if self._samples else taken,
            batch.reward[k],
            batch.terminated[k],
            batch.truncated[k],
            batch.acting[k],
            batch.first[k],
            batch.valid[k],
            random.integers(0, num_actions, (config.unroll, num_lanes)),
            config.unroll,
            config.n_step,
            config.gamma,
        )
        if self._network.takes_turns:
            seats: Any = batch.observation
            cut = for_movers(cut, seats[TO_PLAY][k])
        lanes = np.arange(num_lanes)
        needed = cut.discount != 0.0
        root_value = None
        if config.bootstrap == "search":
            has_root = batch.acting[k][cut.end, lanes] & batch.valid[k][cut.end, lanes]
            root_value = np.where(has_root, decision["value"][k][cut.end, lanes], np.float32(np.nan))
            needed &= ~has_root
        # Windows overlap, so that most of these rows are needed by several places.
        rows, future_of = np.unique((cut.end * num_lanes + lanes)[needed], return_inverse=True)
        index = np.zeros(cut.end.shape, np.int64)
        index[needed] = future_of

        def seen(pick: Any) -> tuple[Any, Tensor | None]:
            found: tuple[Any, Tensor | None] = self._network.split(map_tree(pick, batch.observation))
            return found

        def future(array: Array) -> Tensor:
            return move(array[k].reshape(-1, *array.shape[3:])[rows], device)

        def unrolled(array: Array) -> Tensor:
            return move(array[k, :places].reshape(-1, *array.shape[3:]), device)

        def floats(flags: Array) -> Tensor:
            return move(flags.astype(np.float32), device)

        action, policy, sampled = cut.action, decision["policy"][k, :places], None
        if self._samples:
            action = self._actions.inputs(taken[: config.unroll], cut.has_policy[:-1], random)
            policy, sampled = policy[..., 0], policy[..., 1:]
        observation, allowed = seen(unrolled)
        if allowed is not None and not fetch(allowed.any(1)).numpy()[cut.has_policy.ravel()].all():
            raise ValueError(
                f"the action mask {config.mask_key!r} of an observation in which an agent acted allows no action; "
                "allow one, or end the episode before"
            )
        return Window(
            observation,
            seen(future)[0],
            move(index, device),
            move(action, device),
            move(cut.reward, device),
            floats(cut.has_reward),
            floats(cut.has_value),
            floats(cut.has_policy),
            move(policy, device),
            None if sampled is None else move(sampled, device),
            move(cut.total, device),
            move(cut.discount, device),
            None if root_value is None else move(root_value, device),
            move(batch.weight[k], device),
        )

    def gradient_step(self, batch: Window, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        config: MuZeroConfig = self.config
        network, steps = self._network, config.unroll
        values = self.value_targets(batch)
        latents = self._unroll(batch)  # [K+1, N, H]
        parts = network.predict(latents.flatten(0, 1))
        policy, value, reward = (part.view(*latents.shape[:2], -1) for part in parts)
        scale = torch.full((steps + 1, 1), 1.0 / steps, device=values.device)
        scale[0] = 1.0
        count = torch.full((), 1.0 / len(batch.weight), device=values.device)
        weight = scale * batch.weight * count  # [K+1, N]
        policy_loss = -(batch.policy * self._log_probability(policy, batch)).sum(-1)
        value_loss = bin_loss(value, values, network.model.bin_width)
        reward = network.reward_logits(latents[1:], reward[1:])
        reward_loss = bin_loss(reward, network.reward_targets(batch.reward), network.model.bin_width)
        losses = {
            "policy_loss": (policy_loss * batch.has_policy * weight).sum(),
            "value_loss": (value_loss * batch.has_value * weight).sum(),
            "reward_loss": (reward_loss * batch.has_reward * weight[1:]).sum(),
        }
        loss = losses["policy_loss"] + config.value_weight * losses["value_loss"] + losses["reward_loss"]
        if self._samples is not None and config.entropy_weight:
            spread = entropy(self._samples, policy.flatten(0, 1)).view(weight.shape)
            losses["policy_entropy"] = (spread * batch.has_policy * weight).sum()
            loss = loss - config.entropy_weight * losses["policy_entropy"]
        if self._consistency is not None:
            losses["consistency_loss"] = self._inconsistency(self._consistency, latents[1:], batch, weight[1:])
            loss = loss + config.consistency_weight * losses["consistency_loss"]
        torch.autograd.backward(loss)
        for name in self.learner.flat:
            self.learner.descend(name, learning_rate, config.max_grad_norm)
        if self.num_steps % config.target_update == 0:
            self.learner.follow(NETWORK, 1.0)
        with torch.no_grad():
            found = network.mean(value[0])
            errors = (found - values[0]).abs() * batch.has_value[0]
            search_entropy = -(batch.policy[0] * batch.policy[0].clamp(min=1e-9).log()).sum(-1)
            metrics = {
                "loss": loss,
                **losses,
                "value": (found * batch.has_value[0]).mean(),
                "td_error": errors.mean(),
                "search_entropy": (search_entropy * batch.has_policy[0]).mean(),
            }
            return metrics, errors

    def _log_probability(self, policy: Tensor, batch: Window) -> Tensor:
        """Return the log-probabilities [K+1, N, A] of the actions that the targets have weights of."""
        if self._samples is None or batch.sampled is None:
            return torch.log_softmax(policy, -1)
        found = log_probability(self._samples, policy.flatten(0, 1), batch.sampled.flatten(0, 1))
        return found.view(batch.policy.shape)

    @torch.no_grad()
    def value_targets(self, batch: Window) -> Tensor:
        """Return the targets of values [K+1, N]."""
        target = self.learner.targets[NETWORK]
        assert isinstance(target, MuZeroNetwork)
        values = batch.total
        if len(next(iter(_tensors(batch.future)))):
            found = target.mean(target.predict(target.represent(batch.future))[1])[batch.future_of]
            values = torch.addcmul(values, batch.discount, found)
        if batch.root_value is not None:
            with_root = torch.addcmul(batch.total, batch.discount, batch.root_value.nan_to_num())
            values = torch.where(batch.root_value.isnan(), values, with_root)
        return values

    def _unroll(self, batch: Window) -> Tensor:
        """Return the latent states [K+1, N, H]. Each step of the dynamics halves the gradient that it receives from
        later steps, so that the representation does not learn mostly from the last ones."""
        steps, num_windows = batch.reward.shape
        latent = self._network.represent(map_tree(lambda part: part[:num_windows], batch.observation))
        latents = [latent]
        for k in range(steps):
            latent = self._network.imagine(half_gradient(latent) if k else latent, batch.action[k])
            latents.append(latent)
        return torch.stack(latents)

    def _inconsistency(self, head: Consistency, latents: Tensor, batch: Window, weight: Tensor) -> Tensor:
        """Return the negative cosine similarity of predicted states [K, N, H] and the representations of the
        observations that followed (Ye et al. 2021, eq. 3), which get no gradient."""
        num_windows = batch.reward.shape[1]
        with torch.no_grad():
            later = map_tree(lambda part: part[num_windows:], batch.observation)
            goal = head.projection(self._network.represent(later))
        found = head.predictor(head.projection(latents.flatten(0, 1)))
        similarity = functional.cosine_similarity(found, goal, -1).view(weight.shape)
        return -(similarity * batch.has_policy[1:] * weight).sum()

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array:
        with torch.no_grad():
            inputs: Any = map_tree(lambda array: move(array, self.learner.device), observation)
            return fetch(self._network(inputs)[1]).numpy()


def half_gradient(latent: Tensor) -> Tensor:
    """Return the same numbers, through which half of the gradient flows back."""
    return torch.lerp(latent.detach(), latent, 0.5)


def _tensors(tree: Any) -> list[Tensor]:
    return [part for value in tree.values() for part in _tensors(value)] if isinstance(tree, dict) else [tree]
