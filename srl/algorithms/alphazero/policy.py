"""A policy that searches with the rules of the game."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from srl.algorithms.alphazero.config import STATE, TO_PLAY, AlphaZeroConfig
from srl.algorithms.alphazero.network import BOARD, AlphaZeroNetwork
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.api.simulator import Simulator
from srl.base.seeding import generator, generator_state, restore_generator
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.parameters import FlatParameters
from srl.search import Evaluation, Search, SearchResult, Step, sample_actions


class AlphaZeroPolicy(Policy):
    """Each decision is a search of all lanes at once, from the states in the observations. Greedy decisions have no
    noise and no temperature. Decisions have the policy that the search found, and the value of the root."""

    def __init__(self, config: AlphaZeroConfig, simulator: Simulator, network: AlphaZeroNetwork, seed: int) -> None:
        self._config = config
        self._simulator = simulator
        self._device = resolve_device(config.device)
        self._network = network.eval()
        self._flat = FlatParameters(place(network, self._device), gradients=False)
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
        legal = self._simulator.legal(states)
        going = np.flatnonzero(legal.any(1))  # rows after the end of a game need no decision
        num_rows, num_actions = legal.shape
        policy = np.full((num_rows, num_actions), 1.0 / num_actions, np.float32)
        action, found_value = np.zeros(num_rows, np.int64), np.zeros(num_rows, np.float32)
        if len(going):
            states, legal = states[going], legal[going]
            to_play = self._simulator.to_play(states)
            value, logits = self._evaluate(states, to_play)
            root, rng = Evaluation((states, to_play), value, logits), None if greedy else self._random
            result = search.run(root, self._step, rng, legal, noise=not greedy)
            action[going] = self._chosen(result, states, greedy)
            policy[going], found_value[going] = result.policy, result.value
        return {"action": action, "policy": policy, "value": found_value}

    def _chosen(self, result: SearchResult, states: Array, greedy: bool) -> Array:
        config = self._config
        if greedy or config.search == "gumbel" or config.temperature_moves == 0:
            return result.actions
        early = self._simulator.ply(states) < config.temperature_moves
        drawn = sample_actions(result.visits, config.temperature, self._random)
        return np.where(early, drawn, result.actions)

    def _step(self, state: tuple[Array, Array], action: Array) -> Step:
        """Return what follows from actions [n] in states, with the turn of each: the model of the search."""
        states, mover = state
        moves = self._simulator.step(states, action)
        value, logits = self._evaluate(moves.state, moves.to_play)
        discount = np.where(moves.to_play == mover, np.float32(self._config.gamma), np.float32(-self._config.gamma))
        discount[moves.ended] = 0.0
        return Step((moves.state, moves.to_play), moves.reward, discount, value, logits, moves.legal)

    def _evaluate(self, states: Array, to_play: Array) -> tuple[Array, Array]:
        """Return the network's values [n] for the players to move, and logits [n, A]."""
        seen: Any = self._simulator.observe(states)
        parts = dict(seen) if isinstance(seen, Mapping) else {BOARD: seen}
        if self._simulator.spec.num_players > 1:
            parts[TO_PLAY] = to_play
        logits, share = self._network.outputs(map_tree(lambda array: move(array, self._device), parts))
        return fetch(self._network.value_of(share)).numpy(), fetch(logits).numpy()

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
