"""Games of OpenSpiel (Lanctot et al. 2019) as simulators."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srl.api.lanes import named_texts
from srl.api.simulator import SimulatorConfig
from srl.api.spaces import Box
from srl.base.errors import nearest
from srl.base.tree import Array
from srl.environments.games.histories import HistorySimulator


@dataclass(frozen=True)
class OpenSpielConfig(SimulatorConfig):
    """A game by its name in OpenSpiel, such as `breakthrough`, and its parameters."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> OpenSpielGame:
        return OpenSpielGame(self.name, self.parameters)

    def title(self) -> str:
        return f"openspiel:{self.name}"

    def named_code(self) -> tuple[str, ...]:
        # `efg_game` and others open files that parameters name, also in a name: `efg_game(filename=x)`.
        own = re.fullmatch("[a-z0-9_]+", self.name)
        return (*(() if own else (self.title(),)), *named_texts(self.parameters))


class OpenSpielGame(HistorySimulator):
    """Positions are states of OpenSpiel, which is compiled; moves are made on copies."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        title = f"openspiel:{name}"
        if importlib.util.find_spec("pyspiel") is None:
            raise ImportError(f"{title} needs OpenSpiel, which is not installed: pip install 'srl-rl[openspiel]'")
        import pyspiel

        known = pyspiel.registered_names()
        if name not in known:
            raise ValueError(f"OpenSpiel has no game {name!r}{nearest(name, known)}")
        try:
            game = pyspiel.load_game(name, dict(parameters))
        except pyspiel.SpielError as error:
            raise ValueError(f"{title}: {str(error).splitlines()[0]}") from error
        _check(title, game, pyspiel.GameType)
        self._game = game
        observation = Box(tuple(game.observation_tensor_shape()))
        players, most = game.num_players(), game.max_game_length()
        super().__init__(title, game.num_distinct_actions(), players, most, observation)

    def first(self) -> Any:
        return self._game.new_initial_state()

    def after(self, position: Any, action: int) -> tuple[Any, float]:
        mover = position.current_player()
        after = position.child(action)
        return after, after.player_reward(mover)

    def has_ended(self, position: Any) -> bool:
        return bool(position.is_terminal())

    def mover(self, position: Any) -> int:
        return int(position.current_player())

    def moves_of(self, position: Any) -> Array:
        return np.asarray(position.legal_actions(), np.int64)

    def seen(self, position: Any) -> Array:
        player = 0 if position.is_terminal() else position.current_player()
        return np.asarray(position.observation_tensor(player), np.float32).reshape(
            self._game.observation_tensor_shape()
        )


def _check(title: str, game: Any, kinds: Any) -> None:
    """Raise ValueError for a game that has no perfect simulator of one or two players."""
    kind = game.get_type()
    if kind.chance_mode != kinds.ChanceMode.DETERMINISTIC:
        raise ValueError(
            f"{title} is not deterministic: it has chance moves, which alphazero cannot search; use muzero"
        )
    if kind.information != kinds.Information.PERFECT_INFORMATION or kind.dynamics != kinds.Dynamics.SEQUENTIAL:
        raise ValueError(
            f"{title} has hidden information or simultaneous moves, so that a state does not say all that a player "
            "needs; use ppo with self-play, on pettingzoo:"
        )
    if game.num_players() > 2 or (game.num_players() == 2 and kind.utility != kinds.Utility.ZERO_SUM):
        raise ValueError(
            f"{title} has {game.num_players()} players and rewards of the kind {kind.utility.name}; a simulator is of "
            "one player, or of two of whom one loses what the other wins"
        )
    if not kind.provides_observation_tensor:
        raise ValueError(f"{title} provides no observation tensor, which the network needs")
