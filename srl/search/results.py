"""What a search is given and what it returns. Arrays may be of numpy or torch where a model returns them."""

from __future__ import annotations

from typing import Any, NamedTuple

from srl.base.tree import Array


class Evaluation(NamedTuple):
    """The roots: their states and what the network says about them."""

    state: Any  # an array [L, ...], or dicts and tuples of arrays
    value: Any  # [L], from the perspective of the player to move
    logits: Any  # [L, A]; -inf: illegal


class Step(NamedTuple):
    """What a model returns for one action in each lane."""

    state: Any  # the next states, with the structure of the given ones
    reward: Any  # [L], from the perspective of the player who moved
    discount: Any  # [L] or a number; 0: terminal; negative: the next value is the opponent's
    value: Any  # [L], of the next states, from the perspective of their players to move
    logits: Any  # [L, A] of the next states, or [L, W] with chance nodes
    legal: Any = None  # bool [L, A]; None: all actions
    chance: Any = None  # bool [L]; the next states are chance nodes, whose logits are those of outcomes


class SearchResult(NamedTuple):
    actions: Array  # [L] int64, the best action (`sample_actions` draws others)
    policy: Array  # [L, A] float32, the training target
    value: Array  # [L] float32, the root value: mean of the network's value and of all simulations
    visits: Array  # [L, A] int32
    q: Array  # [L, A] float32, mean return; actions without visits have the mixed value
