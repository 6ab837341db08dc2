"""Games in which one lane carries the moves of all seats."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.lanes import Lanes, LaneSpec, TeamSpec, TimeStep
from srl.api.simulator import Simulator
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.base.seeding import generator_state, restore_generator
from srl.base.state import State, pack, unpack
from srl.base.tree import Array, Tree
from srl.environments.conversion import OBSERVATION
from srl.environments.factories import copy_seeds
from srl.environments.games.images import board_image

TO_PLAY, STATE = "to_play", "state"


def observations_of(config: Any, simulator: Simulator, state: Array, legal: Array, to_play: Array) -> dict[str, Tree]:
    """Return what the players to move see in states [n, ...], as the lanes of a `GameConfig` return it."""
    seen = simulator.observe(state)
    found = dict(seen) if isinstance(simulator.spec.observation, Dict) else {OBSERVATION: seen}
    found[config.mask_key] = legal.astype(np.uint8)
    if simulator.spec.num_players > 1:
        found[TO_PLAY] = to_play
    if config.states:
        found[STATE] = state
    return found


class Copies:
    """The states of all copies of a game, and how they begin. Each copy has its own generator, so that its episodes do
    not depend on the number of copies."""

    def __init__(self, config: Any, simulator: Simulator, num_copies: int) -> None:
        self.simulator, self.spec = simulator, simulator.spec
        self.config = config
        self.num = num_copies
        self.state = self.spec.state.empty(num_copies)  # [L, ...]
        self.legal = np.zeros((num_copies, self.spec.num_actions), np.bool_)
        self.to_play = np.zeros(num_copies, np.int64)
        self.moves = np.zeros(num_copies, np.int64)  # of this episode, with its opening
        self.ended = np.ones(num_copies, np.bool_)
        self.truncated = np.zeros(num_copies, np.bool_)
        self.generators = [np.random.default_rng(0)] * num_copies

    def observation_space(self) -> Dict:
        spec = self.spec
        items: dict[str, Space] = dict(spec.observation.items) if isinstance(spec.observation, Dict) else {}
        items = items or {OBSERVATION: spec.observation}
        items[self.config.mask_key] = Box((spec.num_actions,), "uint8", 0.0, 1.0)
        if spec.num_players > 1:
            items[TO_PLAY] = Discrete(spec.num_players)
        if self.config.states:
            items[STATE] = Box(spec.state.shape, spec.state.dtype)
        return Dict(items)

    def observations(self) -> dict[str, Tree]:
        """Return what the players to move see. The mask of an ended game allows everything."""
        legal = self.legal | self.ended[:, None]
        return observations_of(self.config, self.simulator, self.state.copy(), legal, self.to_play.copy())

    def seed(self, seed: int) -> None:
        seeds = copy_seeds(seed)
        self.generators = [np.random.default_rng(next(seeds)) for _ in range(self.num)]

    def begin(self, copies: Array) -> None:
        """Start new episodes, some of them with random moves."""
        for copy in copies.tolist():
            random = self.generators[copy]
            while True:
                state = self.simulator.begin(1, random)
                legal, count = self.simulator.legal(state), 0
                if self.config.openings > 0 and random.random() < self.config.openings:
                    count = int(random.integers(1, self.config.opening_moves + 1))
                for _ in range(count):
                    moves = self.simulator.step(state, random.choice(np.flatnonzero(legal[0]), 1))
                    state, legal = moves.state, moves.legal
                    if moves.ended[0]:
                        break
                if legal[0].any():
                    break
            self.state[copy], self.legal[copy], self.moves[copy] = state[0], legal[0], count
            self.to_play[copy] = self.simulator.to_play(state)[0]
        self.ended[copies] = self.truncated[copies] = False

    def move(self, copies: Array, actions: Array) -> Array:
        """Make one move in each of these copies, and return the rewards [n] of the players who moved. An illegal move
        ends the game with the lowest return."""
        rewards = np.full(len(copies), self.spec.lowest, np.float32)
        allowed = (actions >= 0) & (actions < self.spec.num_actions)
        allowed[allowed] = self.legal[copies[allowed], actions[allowed]]
        moved = copies[allowed]
        self.legal[copies[~allowed]], self.ended[copies[~allowed]] = False, True
        if len(moved):
            moves = self.simulator.step(self.state[moved], actions[allowed])
            self.state[moved], self.legal[moved] = moves.state, moves.legal
            self.to_play[moved], self.ended[moved] = moves.to_play, moves.ended
            rewards[allowed] = moves.reward
        self.moves[copies] += 1
        self.truncated[copies] = ~self.ended[copies] & (self.moves[copies] >= self.spec.max_moves)
        return rewards

    @property
    def over(self) -> Array:
        return self.ended | self.truncated

    def saved(self) -> State:
        arrays = {"state": self.state, "legal": self.legal, "to_play": self.to_play, "moves": self.moves}
        arrays |= {"ended": self.ended, "truncated": self.truncated}
        generators = [generator_state(one).tolist() for one in self.generators]
        return {**{name: array.copy() for name, array in arrays.items()}, "generators": pack(generators)}

    def restore(self, state: State) -> None:
        for name in ("state", "legal", "to_play", "moves", "ended", "truncated"):
            getattr(self, name)[...] = state[name]
        self.generators = [np.random.default_rng(0) for _ in range(self.num)]
        for one, numbers in zip(self.generators, unpack(state["generators"]), strict=True):
            restore_generator(one, np.array(numbers, np.uint8))

    def image(self) -> Array:
        return board_image(self.spec, self.simulator.observe(self.state[:1]), int(self.to_play[0]))


class JointGameLanes(Lanes):
    """A lane is a game. Observations are those of the player to move, whose number is `to_play`. Rewards are those of
    player 0: what a player 1 wins is negative. So the return of an episode is the result of player 0."""

    def __init__(self, config: Any, simulator: Simulator, num_copies: int) -> None:
        self._copies = copies = Copies(config, simulator, num_copies)
        action = Discrete(simulator.spec.num_actions)
        team = TeamSpec("player", ("player",), copies.observation_space(), action, mask_key=config.mask_key)
        self.spec = LaneSpec(config.environment_name(), num_copies, (team,))

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        copies = self._copies
        copies.seed(seed)
        copies.begin(np.arange(copies.num))
        return self._time_step(np.zeros(copies.num, np.float32), np.ones(copies.num, np.bool_))

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        copies = self._copies
        starting = copies.over.copy()
        going = np.flatnonzero(~starting)
        reward = np.zeros(copies.num, np.float32)
        sign = 1 - 2 * copies.to_play[going]
        reward[going] = copies.move(going, np.asarray(actions[0])[going]) * sign
        copies.begin(np.flatnonzero(starting))
        return self._time_step(reward, starting)

    def _time_step(self, reward: Array, first: Array) -> tuple[TimeStep, ...]:
        copies = self._copies
        ended, truncated = copies.ended.copy(), copies.truncated.copy()
        return (TimeStep(copies.observations(), reward, ended, truncated, ~(ended | truncated), first),)

    def render(self) -> Array:
        return self._copies.image()

    def state(self) -> State:
        return self._copies.saved()

    def restore(self, state: State) -> None:
        self._copies.restore(state)

    def close(self) -> None:
        pass
