"""A policy that searches in the model of a MuZero network."""

from __future__ import annotations

import threading

import numpy as np
import torch

from srl.algorithms.muzero.network import MuZeroNetwork
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.base.seeding import generator, generator_state, restore_generator
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.parameters import FlatParameters
from srl.search import Evaluation, Search, SearchResult, sample_actions

ILLEGAL = -np.inf


class MuZeroPolicy(Policy):
    """Decides by a search in every lane, with compiled code on the CPU. Its decisions have the improved `policy` [B, A]
    and the root `value` [B], from which the network learns. Without a `search`, the network decides."""

    def __init__(self, network: MuZeroNetwork, search: Search | None, seed: int, device: str = "cpu") -> None:
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._network = network
        self._search = search
        self._parameters = np.zeros(network.num_compiled, np.float32)
        self._model = network.compiled(self._parameters)
        self._temperature = 1.0
        self._rng = generator(seed)
        self._computing = threading.Lock()  # guards the model's memory and the generator

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with self._computing:
            result = self.search(observation, noise=not greedy)
            action = result.actions
            if not greedy and self._search is None:
                action = sample_actions(result.policy, 1.0, self._rng)
            elif not greedy and not self._uses_gumbel:
                action = sample_actions(result.visits, self._temperature, self._rng)
        return {"action": action, "policy": result.policy, "value": result.value}

    @property
    def _uses_gumbel(self) -> bool:
        return self._search is not None and self._search.needs_logits

    def reanalyze(self, observation: Tree) -> dict[str, Array]:
        with self._computing:
            result = self.search(observation, noise=False)
        return {"policy": result.policy, "value": result.value}

    def search(self, observation: Tree, noise: bool) -> SearchResult:
        """Search from observations [B, ...]."""
        root, legal = self._root(observation)
        if self._search is None:
            return _network_only(root, legal)
        return self._search.run(root, self._model, self._rng if noise else None, legal, noise)

    def _root(self, observation: Tree) -> tuple[Evaluation, Array | None]:
        """Return the roots, and the legal actions [B, A]. A row without any, in which no lane can act, has all."""
        with torch.inference_mode():
            inputs = map_tree(lambda array: move(array, self._device), observation)
            rest, allowed = self._network.split(inputs)
            root = self._model.root(fetch(self._network.encoder(rest)).numpy())
        if allowed is None:
            return root, None
        legal: Array = fetch(allowed).numpy()
        return root, legal | ~legal.any(1, keepdims=True)

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array:
        with self._computing:
            return np.array(self._root(observation)[0].value)

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(move(parameters, self._device, wait=True))
        self._parameters[...] = parameters[: len(self._parameters)]
        self._temperature = float(fetch(self._network.temperature))
        self.version = version

    def state(self) -> State:
        return {"generator": generator_state(self._rng)}

    def restore(self, state: State) -> None:
        restore_generator(self._rng, state["generator"])


def _network_only(root: Evaluation, legal: Array | None) -> SearchResult:
    """Return what the network says, as the result of a search without simulations."""
    logits = np.asarray(root.logits, np.float32)
    if legal is not None:
        logits = np.where(legal, logits, np.float32(ILLEGAL))
    policy = np.exp(logits - logits.max(1, keepdims=True))
    policy /= policy.sum(1, keepdims=True)
    value = np.asarray(root.value)
    q = np.repeat(value[:, None], logits.shape[1], 1)
    return SearchResult(policy.argmax(1), policy, value, np.zeros(logits.shape, np.int32), q)
