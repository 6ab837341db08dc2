"""Turn-based games of PettingZoo as simulators."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.api.lanes import named_texts
from srl.api.simulator import SimulatorConfig
from srl.api.spaces import Dict, Discrete
from srl.base.tree import Array, Tree
from srl.environments.adapters.masks import MASK_KEY
from srl.environments.conversion import observation_encoder
from srl.environments.games.histories import HistorySimulator
from srl.environments.pettingzoo.config import OWN_GAME, PettingZooConfig
from srl.environments.spaces import from_gymnasium

MAX_MOVES = 512


@dataclass(frozen=True)
class PettingZooGameConfig(SimulatorConfig):
    """A game by its name in PettingZoo, such as `classic.connect_four_v3`, and its options."""

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_moves: int = MAX_MOVES
    """Moves after which a game is truncated."""

    def build(self) -> PettingZooGame:
        return PettingZooGame(self)

    def title(self) -> str:
        return f"pettingzoo:{self.name}"

    def named_code(self) -> tuple[str, ...]:
        path = self.name.removeprefix("pettingzoo.")
        return (*(() if OWN_GAME.fullmatch(path) else (self.name,)), *named_texts(self.kwargs))


class PettingZooGame(HistorySimulator):
    """Positions are copies of the environment, so that a move costs a deep copy."""

    def __init__(self, config: PettingZooGameConfig) -> None:
        title = config.title()
        self._environment: Any = PettingZooConfig(config.name, {**config.kwargs, "turns": True}).make()
        self._environment.reset(seed=0)
        self._check_repeats(title)
        agents = self._environment.possible_agents
        if len(agents) > 2:
            raise ValueError(f"{title} has {len(agents)} agents; a simulator is of one player or of two")
        space = from_gymnasium(self._environment.observation_space(agents[0]), "observation")
        action = from_gymnasium(self._environment.action_space(agents[0]), "action")
        if not isinstance(action, Discrete):
            raise ValueError(f"{title} has the action space {action}; a simulator needs Discrete actions")
        self._masked = isinstance(space, Dict) and MASK_KEY in space.items
        self._encode = observation_encoder(space)
        rest = space
        if self._masked and isinstance(space, Dict):
            items = {name: item for name, item in space.items.items() if name != MASK_KEY}
            rest = next(iter(items.values())) if len(items) == 1 else Dict(items)
        self._lone = self._masked and not isinstance(rest, Dict)
        self._agents = {agent: number for number, agent in enumerate(agents)}
        super().__init__(title, action.n, len(agents), config.max_moves, rest)

    def _check_repeats(self, title: str) -> None:
        """Raise ValueError if a game depends on its seed: a search could then look at hidden cards."""
        seen = []
        for seed in (0, 1, 2, 3):
            self._environment.reset(seed=seed)
            seen.append(_flat(self._environment.observe(self._environment.agent_selection)))
        self._environment.reset(seed=0)
        if any(not np.array_equal(seen[0], other) for other in seen[1:]):
            raise ValueError(
                f"{title} is not deterministic: games begin differently with another seed, so that its simulator would "
                "know what players cannot; use ppo with self-play, or muzero"
            )

    def first(self) -> Any:
        return _copied(self._environment, {})

    def after(self, position: Any, action: int) -> tuple[Any, float]:
        after = _copied(position, {})
        mover = after.agent_selection
        after.step(action)
        rewards = dict(after.rewards)
        if len(self._agents) == 2 and abs(sum(rewards.values())) > 1e-6:
            raise ValueError(
                f"{self.spec.name}: rewards {rewards} do not add up to 0; a simulator of two players needs a game in "
                "which one loses what the other wins"
            )
        return after, float(rewards.get(mover, 0.0))

    def has_ended(self, position: Any) -> bool:
        agents = position.agents
        return not agents or any(position.terminations[one] or position.truncations[one] for one in agents)

    def mover(self, position: Any) -> int:
        return self._agents[position.agent_selection]

    def moves_of(self, position: Any) -> Array:
        agent = position.agent_selection
        mask = position.observe(agent)[MASK_KEY] if self._masked else position.infos[agent].get(MASK_KEY)
        if mask is None:
            return np.arange(self.spec.num_actions)
        return np.flatnonzero(np.asarray(mask))

    def seen(self, position: Any) -> Tree:
        agent = position.agent_selection if position.agents else next(iter(self._agents))
        tree: Any = self._encode(position.observe(agent))
        if self._masked:
            tree = {name: part for name, part in tree.items() if name != MASK_KEY}
        found: Tree = next(iter(tree.values())) if self._lone else tree
        return found


def _copied(environment: Any, memo: dict[int, Any]) -> Any:
    """Return a copy of an environment and its wrappers with their attributes. `copy.deepcopy` would call the
    constructor of those that inherit from EzPickle, and lose the position."""
    from pettingzoo import AECEnv

    made = memo[id(environment)] = object.__new__(type(environment))
    for name, value in vars(environment).items():
        vars(made)[name] = _copied(value, memo) if isinstance(value, AECEnv) else copy.deepcopy(value, memo)
    return made


def _flat(observation: Any) -> Array:
    if isinstance(observation, Mapping):
        return np.concatenate([_flat(part) for part in observation.values()])
    return np.ravel(np.asarray(observation, np.float64))
