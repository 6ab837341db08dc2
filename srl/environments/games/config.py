"""Configs of games: lookup by name, and the form of their lanes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from srl.api.lanes import Lanes, LanesConfig
from srl.api.simulator import SimulatorConfig
from srl.base.errors import nearest
from srl.environments.adapters.masks import MASK_KEY
from srl.environments.factories import locate
from srl.environments.games.boards import RowGameConfig
from srl.environments.games.cartpole import CartPoleConfig

PREFIX = "game:"
OPENSPIEL, PETTINGZOO = "openspiel", "pettingzoo"
GAMES: Mapping[str, Callable[..., SimulatorConfig]] = {
    "tic-tac-toe": lambda: RowGameConfig(3, 3, 3),
    "connect-four": lambda: RowGameConfig(6, 7, 4, gravity=True),
    "in-a-row": RowGameConfig,
    "cartpole": CartPoleConfig,
}


@dataclass(frozen=True)
class GameConfig(LanesConfig):
    """A game or task with a simulator, and the form of its lanes."""

    game: SimulatorConfig
    seats: Literal["separate", "joint"] = "separate"
    """Whether each player of a game has lanes, or a lane carries the moves of all players."""
    states: bool = False
    """Whether observations contain the simulator's state, under the key `state`."""
    openings: float = 0.0
    """Share of the games that begin with random moves, so that a policy that plays against itself also sees positions
    beside its own games."""
    opening_moves: int = 4
    """Largest number of these moves."""
    mask_key: str = MASK_KEY

    def __post_init__(self) -> None:
        if self.seats not in ("separate", "joint"):
            raise ValueError(f"seats must be 'separate' or 'joint', found {self.seats!r}")
        if not 0.0 <= self.openings <= 1.0:
            raise ValueError(f"openings must be a share from 0 to 1, found {self.openings}")
        if self.opening_moves < 1:
            raise ValueError(f"opening_moves must be at least 1, found {self.opening_moves}")

    def environment_name(self) -> str:
        return f"{PREFIX}{self.game.title()}"

    def named_code(self) -> tuple[str, ...]:
        return self.game.named_code()

    def build(self, num_copies: int) -> Lanes:
        from srl.environments.games.joint_lanes import JointGameLanes
        from srl.environments.games.seat_lanes import SeatLanes

        simulator = self.game.build()
        joint = self.seats == "joint" or simulator.spec.num_players == 1
        return (JointGameLanes if joint else SeatLanes)(self, simulator, num_copies)

    def with_mask_key(self, key: str) -> GameConfig:
        return replace(self, mask_key=key)

    def with_joint_seats(self) -> GameConfig:
        return replace(self, seats="joint")

    def with_separate_seats(self) -> GameConfig:
        return replace(self, seats="separate")

    def with_states(self) -> GameConfig:
        return replace(self, seats="joint", states=True)

    def simulator(self) -> SimulatorConfig:
        from srl.environments.games.checks import check_simulator

        check_simulator(self.game)
        return self.game


def is_packaged_game(environment: str) -> bool:
    """Return whether this names a game of SRL, OpenSpiel or PettingZoo. Other names are those of code."""
    prefix, _, name = environment.partition(":")
    return f"{prefix}:" == PREFIX and (name in GAMES or name.startswith((f"{OPENSPIEL}:", f"{PETTINGZOO}:")))


def game_config(name: str, options: Mapping[str, Any]) -> GameConfig:
    """Return the config of a game by its name without the prefix. Raises ValueError for unknown names and options."""
    own = {field.name for field in dataclasses.fields(GameConfig)} - {"game", "seats", "states", "mask_key"}
    lane_options = {option: value for option, value in options.items() if option in own}
    rest = {option: value for option, value in options.items() if option not in own}
    return GameConfig(_simulator_config(name, rest, own), **lane_options)


def _simulator_config(name: str, options: Mapping[str, Any], also: set[str]) -> SimulatorConfig:
    family, _, inner = name.partition(":")
    if family == OPENSPIEL and inner:
        from srl.environments.games.openspiel import OpenSpielConfig

        return OpenSpielConfig(inner, options)
    if family == PETTINGZOO and inner:
        from srl.environments.games.pettingzoo import MAX_MOVES, PettingZooGameConfig

        kwargs = {option: value for option, value in options.items() if option != "max_moves"}
        return PettingZooGameConfig(inner, kwargs, int(options.get("max_moves", MAX_MOVES)))
    made: Any = GAMES.get(name)
    if made is None and ":" in name:
        made = locate(name)
        if not (dataclasses.is_dataclass(made) and isinstance(made, type) and issubclass(made, SimulatorConfig)):
            raise ValueError(
                f"{name} must be a frozen dataclass that inherits from srl.api.simulator.SimulatorConfig, not {made!r}"
            )
    if made is None:
        raise ValueError(
            f"no game {name!r}{nearest(name, GAMES)}; SRL has {', '.join(GAMES)}, openspiel:NAME and pettingzoo:NAME. "
            "Name your own as game:package.module:Config or game:path/to/file.py:Config"
        )
    known = [field.name for field in dataclasses.fields(made)] if isinstance(made, type) else []
    for option in options:
        if option not in known:
            raise ValueError(f"environment game:{name} has no option {option!r}{nearest(option, [*known, *also])}")
    config: SimulatorConfig = made(**options)
    return config
