"""Learning from searches and results of games (Silver et al. 2018)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.alphazero.board import BOARD, is_board
from srl.algorithms.alphazero.config import TO_PLAY, AlphaZeroConfig
from srl.algorithms.alphazero.network import AlphaZeroNetwork, losses
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.trainer import TransitionTrainer
from srl.algorithms.training.devices import move
from srl.api.dataflow import TransitionBatch
from srl.api.simulator import Simulator
from srl.base.tree import Array, map_tree

NETWORK = "alphazero"


class Positions(NamedTuple):
    """Positions of one gradient step, [B, ...] each. Returns are those of player 0."""

    observation: dict[str, Any]
    policy: Tensor  # [B, A]: what the search found, and so is the next one
    root_value: Tensor  # for the player to move
    reward: Tensor  # sum of the rewards until the end, or until `next_observation`
    discount: Tensor  # 0 if the game has ended
    next_observation: dict[str, Any]


def value_targets(reward: Tensor, discount: Tensor, next_value: Tensor, mover: Tensor, next_mover: Tensor) -> Tensor:
    """Return the targets [B] of values, for the players to move. `reward` is that of player 0; `next_value` is for the
    player who moves then:

        z = sign(mover) (reward + discount * sign(next mover) * next value), sign(0) = 1, sign(1) = -1
    """
    sign, next_sign = 1.0 - 2.0 * mover, 1.0 - 2.0 * next_mover
    return sign * (reward + discount * next_sign * next_value)


class AlphaZeroTrainer(TransitionTrainer):
    """The target network values the positions in which unfinished games are now."""

    def __init__(self, config: AlphaZeroConfig, simulator: Simulator, network: AlphaZeroNetwork, seed: int) -> None:
        super().__init__(config, seed)
        self._network = network
        self.learner = ModuleLearner(
            {NETWORK: network}, (NETWORK,), config.device, config.adam_eps, {"counters": self.counters}
        )
        found = simulator.symmetries() if config.symmetries and is_board(simulator.spec.observation) else ()
        self._symmetries = [(torch.from_numpy(one.cells), torch.from_numpy(one.actions)) for one in found]

    def minibatch(self, batch: TransitionBatch, k: int, device: torch.device) -> Positions:
        def pick(array: Array) -> Tensor:
            return move(array[k], device)

        observation: Any = map_tree(pick, batch.observation)
        policy: Any = map_tree(pick, batch.decision["policy"])
        root_value: Any = map_tree(pick, batch.decision["value"])
        reward, discount = pick(batch.reward), pick(batch.discount)
        following: Any = map_tree(pick, batch.next_observation)
        return Positions(*self._changed(observation, policy), root_value, reward, discount, following)

    def _changed(self, observation: dict[str, Any], policy: Tensor) -> tuple[dict[str, Any], Tensor]:
        """Return the positions in one of their symmetric forms, drawn for the whole minibatch."""
        if not self._symmetries:
            return observation, policy
        number = int(np.random.default_rng([*self.counters.tolist()]).integers(len(self._symmetries) + 1))
        if number == len(self._symmetries):
            return observation, policy
        cells, actions = (index.to(policy.device) for index in self._symmetries[number])
        board, mask = observation[BOARD], self._network.mask_key
        changed = board.flatten(2).index_select(2, cells).view_as(board)
        more = {BOARD: changed, mask: observation[mask].index_select(1, actions)}
        return {**observation, **more}, policy.index_select(1, actions)

    def gradient_step(self, batch: Positions, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        config: AlphaZeroConfig = self.config
        network = self._network
        target = network.share_of(torch.lerp(self._targets(batch), batch.root_value, config.search_value_share))
        logits, share = network.outputs(network.seen(batch.observation))
        policy_loss, value_loss = losses(network.masked(logits, batch.observation), share, batch.policy, target)
        loss = policy_loss.mean() + config.value_weight * value_loss.mean()
        torch.autograd.backward(loss)
        flat = self.learner.flat[NETWORK]
        flat.gradients.add_(flat.trainable, alpha=config.weight_decay)
        self.learner.descend(NETWORK, learning_rate, config.max_grad_norm)
        if self.num_steps % config.target_update == 0:
            self.learner.follow(NETWORK, 1.0)
        with torch.no_grad():
            entropy = -(batch.policy * batch.policy.clamp(min=1e-9).log()).sum(1)
            metrics = {
                "loss": loss,
                "policy_loss": (policy_loss - entropy).mean(),  # divergence from the search's policy
                "value_loss": value_loss.mean(),
                "search_entropy": entropy.mean(),
            }
            return metrics, value_loss.sqrt()

    def _targets(self, batch: Positions) -> Tensor:
        """Return the targets of values [B]. Only games that have not ended need the target network."""
        value = torch.zeros_like(batch.reward)
        with torch.no_grad():
            goes_on = batch.discount.nonzero()[:, 0]
            if len(goes_on):
                target = self.learner.targets[NETWORK]
                assert isinstance(target, AlphaZeroNetwork)
                rows: Any = map_tree(lambda leaf: leaf[goes_on], batch.next_observation)
                value[goes_on] = target.value_of(target.outputs(target.seen(rows))[1])
            mover, after = (self._mover(tree, value) for tree in (batch.observation, batch.next_observation))
            return value_targets(batch.reward, batch.discount, value, mover, after)

    @staticmethod
    def _mover(observation: dict[str, Any], like: Tensor) -> Tensor:
        mover: Tensor = observation[TO_PLAY].to(like.dtype) if TO_PLAY in observation else torch.zeros_like(like)
        return mover
