"""A policy that searches with the rules of the game."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch

from srl.algorithms.alphazero.board import BOARD
from srl.algorithms.alphazero.config import STATE, TO_PLAY, AlphaZeroConfig
from srl.algorithms.alphazero.network import AlphaZeroNetwork
from srl.algorithms.training.devices import fetch, move, multiplies_bfloat16, place, resolve_device
from srl.api.policy import Decision, GradualDecisions, Policy
from srl.api.simulator import Simulator
from srl.base.seeding import generator, generator_state, restore_generator
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.parameters import FlatParameters
from srl.search import Evaluation, Search, SearchQueue, SearchResult, Step, sample_actions


class _Moves(NamedTuple):
    """The decisions [B] of a request that need a search. Rows after the end of a game need none."""

    shape: tuple[int, int]  # rows of the request, actions
    rows: Array  # [n]
    states: Array  # [n, ...]
    legal: Array  # [n, A], without moves that are known to be worse


class AlphaZeroPolicy(Policy):
    """Each decision is a search of all lanes at once, from the states in the observations. Greedy decisions have no
    noise and no temperature. Decisions have the policy that the search found, and the value of the root."""

    def __init__(self, config: AlphaZeroConfig, simulator: Simulator, network: AlphaZeroNetwork, seed: int) -> None:
        self._config = config
        self._simulator = simulator
        self._device = resolve_device(config.device)
        self._network = network.eval()
        self._flat = FlatParameters(place(network, self._device), gradients=False)
        wanted = config.search_precision
        self._in_bfloat16 = wanted == "bfloat16" or (wanted == "auto" and multiplies_bfloat16(self._device))
        self._search = config.build_search(simulator.spec.num_actions) if config.simulations else None
        self._random = generator(seed, "search")
        self._computing = threading.Lock()  # guards the generator

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        assert isinstance(observation, Mapping)
        with torch.inference_mode(), self._computing:
            if self._search is None:
                return self._of_network(observation, greedy)
            return self._of_search(self._search, observation[STATE], greedy)

    def _of_network(self, observation: Any, greedy: bool) -> Decision:
        """Decide without a search, from what the network says about the observations."""
        logits, value = self._network(map_tree(lambda array: move(array, self._device), observation))
        policy = fetch(logits.softmax(1)).numpy()
        action = sample_actions(policy, 0.0 if greedy else 1.0, self._random)
        return {"action": action, "policy": policy, "value": fetch(value).numpy()}

    def _of_search(self, search: Search, states: Any, greedy: bool) -> Decision:
        moves = self.moves(states)
        if not len(moves.rows):
            return self.decision(moves, None)
        rng = None if greedy else self._random
        return self.decision(moves, search.run(self.root(moves), self.follow, rng, moves.legal, not greedy), greedy)

    def moves(self, states: Any) -> _Moves:
        plies = self._config.foresight
        legal = self._simulator.foresee(states, plies).moves if plies else self._simulator.legal(states)
        rows = np.flatnonzero(legal.any(1))
        return _Moves(legal.shape, rows, states[rows], legal[rows])

    def root(self, moves: _Moves) -> Evaluation:
        to_play = self._simulator.to_play(moves.states)
        return Evaluation((moves.states, to_play), *self._evaluate(moves.states, to_play))

    def decision(self, moves: _Moves, result: SearchResult | None, greedy: bool = False) -> Decision:
        num_rows, num_actions = moves.shape
        policy = np.full((num_rows, num_actions), 1.0 / num_actions, np.float32)
        action, value = np.zeros(num_rows, np.int64), np.zeros(num_rows, np.float32)
        if result is not None:
            action[moves.rows] = self._chosen(result, moves.states, greedy)
            policy[moves.rows], value[moves.rows] = result.policy, result.value
        return {"action": action, "policy": policy, "value": value}

    def _chosen(self, result: SearchResult, states: Array, greedy: bool) -> Array:
        config = self._config
        if greedy or config.search == "gumbel" or config.temperature_moves == 0:
            return result.actions
        early = self._simulator.ply(states) < config.temperature_moves
        drawn = sample_actions(result.visits, config.temperature, self._random)
        return np.where(early, drawn, result.actions)

    def follow(self, state: tuple[Array, Array], action: Array) -> Step:
        """Return what follows from actions [n] in states, with the turn of each: the model of the search."""
        states, mover = state
        moves = self._simulator.step(states, action)
        value, logits = self._evaluate(moves.state, moves.to_play)
        legal = moves.legal
        if self._config.foresight:
            known, legal = self._simulator.foresee(moves.state, self._config.foresight)
            value = np.where(np.isnan(known), value, known)
        discount = np.where(moves.to_play == mover, np.float32(self._config.gamma), np.float32(-self._config.gamma))
        discount[moves.ended] = 0.0
        return Step((moves.state, moves.to_play), moves.reward, discount, value, logits, legal)

    def _evaluate(self, states: Array, to_play: Array) -> tuple[Array, Array]:
        """Return the network's values [n] for the players to move, and logits [n, A]."""
        seen: Any = self._simulator.observe(states)
        parts = dict(seen) if isinstance(seen, Mapping) else {BOARD: seen}
        if self._simulator.spec.num_players > 1:
            parts[TO_PLAY] = to_play
        inputs = map_tree(lambda array: move(array, self._device), parts)
        logits, share = self._network.outputs(inputs, self._in_bfloat16)
        return fetch(self._network.value_of(share)).numpy(), fetch(logits).numpy()

    def gradual_decisions(self) -> GradualDecisions | None:
        return None if self._search is None else _GradualSearch(self, SearchQueue(self._search), self._random)

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array:
        """Return the network's values for the players to move, without a search."""
        assert isinstance(observation, Mapping)
        states: Any = observation[STATE]
        with torch.inference_mode(), self._computing:
            return self._evaluate(states, self._simulator.to_play(states))[0]

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(move(parameters, self._device, wait=True))
        self.version = version

    def state(self) -> State:
        return {"generator": generator_state(self._random)}

    def restore(self, state: State) -> None:
        restore_generator(self._random, state["generator"])


class _GradualSearch(GradualDecisions):
    """Searches of policy workers. Each step is one simulation of all positions, with one call of the network."""

    def __init__(self, policy: AlphaZeroPolicy, queue: SearchQueue, random: np.random.Generator) -> None:
        self._policy, self._queue, self._random = policy, queue, random
        self._keys = count()
        self._searched: dict[int, tuple[int, _Moves]] = {}  # key in the queue -> key and moves of the request
        self._unsearched: list[tuple[int, Decision]] = []

    def begin(self, observation: Tree, state: Tree | None, first: Array) -> int:
        assert isinstance(observation, Mapping)
        key, moves = next(self._keys), self._policy.moves(observation[STATE])
        if len(moves.rows):
            with torch.inference_mode():
                root = self._policy.root(moves)
            self._searched[self._queue.begin(root, self._random, moves.legal)] = key, moves
        else:
            self._unsearched.append((key, self._policy.decision(moves, None)))
        return key

    def step(self) -> list[tuple[int, Decision]]:
        finished, self._unsearched = self._unsearched, []
        with torch.inference_mode():
            results = self._queue.advance(self._policy.follow)
        for searched, result in results:
            key, moves = self._searched.pop(searched)
            finished.append((key, self._policy.decision(moves, result)))
        return finished
