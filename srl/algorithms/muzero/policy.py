"""A policy that searches in the model of a MuZero network."""

from __future__ import annotations

import threading

import numpy as np
import torch

from srl.algorithms.muzero.network import MuZeroNetwork
from srl.algorithms.muzero.samples import SampledActions
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.base.seeding import generator, generator_state, restore_generator
from srl.base.state import State
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.networks.parameters import FlatParameters
from srl.search import Evaluation, Search, SearchResult, sample_actions, sampled_actions

ILLEGAL = -np.inf


class MuZeroPolicy(Policy):
    """Decides by a search in every lane, with compiled code on the CPU. Its decisions have the improved `policy` [B, A]
    and the root `value` [B], from which the network learns. With sampled actions, the policy is [B, K, 1 + size]: the
    weight of each one, and the action. Without a `search`, the network decides."""

    def __init__(
        self,
        network: MuZeroNetwork,
        search: Search | None,
        seed: int,
        device: str,
        actions: SampledActions,
    ) -> None:
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._network = network
        self._search = search
        self._samples, self._actions = network.model.samples, actions
        self._parameters = np.zeros(network.num_compiled, np.float32)
        self._model = network.compiled(self._parameters)
        self._temperature = 1.0
        self._rng = generator(seed)
        self._computing = threading.Lock()  # guards the model's memory and the generator

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with self._computing:
            result, sampled = self._decide(observation, self._seeds(observation, noise=not greedy), noise=not greedy)
            action = result.actions
            if not greedy and self._search is None:
                action = sample_actions(result.policy, 1.0, self._rng)
            elif not greedy and not self._uses_gumbel:
                action = sample_actions(result.visits, self._temperature, self._rng)
        taken = action if sampled is None else self._actions.native(sampled[np.arange(len(action)), action])
        return {"action": taken, **_targets(result, sampled)}

    @property
    def _uses_gumbel(self) -> bool:
        return self._search is not None and self._search.needs_logits

    def reanalyze(self, observation: Tree) -> dict[str, Array]:
        """Search without noise. Sampled actions are new ones, those of the present policy, whose draws depend on its
        version: the weights of old ones would draw the network to the policy that proposed them."""
        with self._computing:
            seeds = generator(self.version, "reanalyze").integers(0, 2**63, len(next(leaves(observation))[1]))
            return _targets(*self._decide(observation, seeds, noise=False))

    def search(self, observation: Tree, noise: bool) -> SearchResult:
        """Search from observations [B, ...]."""
        return self._decide(observation, self._seeds(observation, noise), noise)[0]

    def _seeds(self, observation: Tree, noise: bool) -> Array | None:
        """Return seeds [B] for sampled actions."""
        if self._samples is None or not noise:
            return None
        return self._rng.integers(0, 2**63, len(next(leaves(observation))[1]))

    def _decide(self, observation: Tree, seeds: Array | None, noise: bool) -> tuple[SearchResult, Array | None]:
        """Search from observations [B, ...]. Return also the sampled actions [B, K, size], if any, which `seeds` [B]
        determine; None: always the same, the first one the most likely."""
        root, legal = self._root(observation, seeds)
        if self._search is None:
            result = _network_only(root, legal)
        else:
            result = self._search.run(root, self._model, self._rng if noise else None, legal, noise)
        if self._samples is None:
            return result, None
        sampled = sampled_actions(self._samples, root.state)
        return result, sampled

    def _root(self, observation: Tree, seeds: Array | None = None) -> tuple[Evaluation, Array | None]:
        """Return the roots, and the legal actions [B, A]. A row without any, in which no lane can act, has all."""
        with torch.inference_mode():
            inputs = map_tree(lambda array: move(array, self._device), observation)
            rest, allowed = self._network.split(inputs)
            features = fetch(self._network.encoder(rest)).numpy()
        legal: Array | None = None if allowed is None else fetch(allowed).numpy()
        if self._samples is not None:
            drawable = None if legal is None else self._actions.drawable(legal)
            return self._model.root(features, seeds, drawable), None
        root = self._model.root(features)
        return root, legal if legal is None else legal | ~legal.any(1, keepdims=True)

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


def _targets(result: SearchResult, sampled: Array | None) -> dict[str, Array]:
    """Return what the network learns from: policies and root values."""
    policy = result.policy if sampled is None else np.concatenate((result.policy[..., None], sampled), -1)
    return {"policy": policy, "value": result.value}


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
