"""Configs that `fuzz_files.py` mutates: each registered algorithm, environment and game occurs in one of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from srl.algorithms.ppo.config import PPOConfig
from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LanesConfig
from srl.api.simulator import SimulatorConfig
from srl.api.spaces import Box, Discrete
from srl.base.config import to_data
from srl.base.object_names import NAMES, load_part
from srl.environments.adapters.atari import AtariConfig
from srl.environments.adapters.envpool import EnvPoolConfig
from srl.environments.adapters.gymnasium import GymnasiumConfig
from srl.environments.adapters.previous_step import PreviousStepConfig
from srl.environments.adapters.team_reward import TeamRewardConfig
from srl.environments.adapters.vector import VectorConfig
from srl.environments.games.boards import RowGameConfig
from srl.environments.games.cartpole import CartPoleConfig
from srl.environments.games.config import GameConfig
from srl.environments.games.openspiel import OpenSpielConfig
from srl.environments.games.pettingzoo import PettingZooGameConfig
from srl.environments.hide_and_seek.lanes import HideAndSeekConfig
from srl.environments.mujoco.lanes import MujocoConfig
from srl.environments.pettingzoo.config import PettingZooConfig
from srl.environments.registry import LanesFunctionConfig
from srl.populations.opponent_pool import PoolConfig
from srl.populations.self_play import SelfPlayConfig
from srl.testing.probe_simulators import Planned, Replied

CARTPOLE = VectorConfig("CartPole-v1")
TIC_TAC_TOE = PettingZooConfig("pettingzoo:classic.tictactoe_v3")
GAMES: tuple[SimulatorConfig, ...] = (
    *(RowGameConfig(3, 3, 3), CartPoleConfig(), Planned(), Replied()),
    *(OpenSpielConfig("breakthrough", {"rows": 6}), PettingZooGameConfig("classic.tictactoe_v3", {})),
)
ENVIRONMENTS: tuple[LanesConfig, ...] = (
    *(CARTPOLE, GymnasiumConfig("CartPole-v1"), AtariConfig("ALE/Pong-v5", "pong"), MujocoConfig("Ant-v5")),
    *(GymnasiumConfig("minigrid", {"id": "MiniGrid-Empty-5x5-v0"}, located=True), EnvPoolConfig("Pong-v5", {})),
    *(TIC_TAC_TOE, HideAndSeekConfig("quadrant", {}), LanesFunctionConfig("package.module:make", {})),
    *(TeamRewardConfig(TIC_TAC_TOE, ((0, 1),)), PreviousStepConfig(CARTPOLE)),
    SelfPlayConfig(TIC_TAC_TOE, "policy", PPOConfig(), Box((4,)), Discrete(2), PoolConfig("uniform")),
    *(GameConfig(game) for game in GAMES),
)


def configs(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the config of a run with each algorithm and each environment in turn."""
    found = [dict(config)]
    for lanes in ENVIRONMENTS:
        changed = deepcopy(dict(config))
        changed["lanes"], changed["environment"] = to_data(lanes), lanes.environment_name()
        found.append(changed)
    for kind in registered(AlgorithmConfig):
        changed = deepcopy(dict(config))
        changed["options"]["fields"]["algo"] = NAMES[f"{kind.__module__}:{kind.__qualname__}"]
        changed["options"]["fields"]["algorithm"] = to_data(kind())
        found.append(changed)
    used = {type(lanes) for lanes in ENVIRONMENTS} | {type(game) for game in GAMES}
    missing = [kind for base in (LanesConfig, SimulatorConfig) for kind in registered(base) if kind not in used]
    assert not missing, f"add to ENVIRONMENTS or GAMES: {missing}"
    return found


def registered(base: type) -> list[type]:
    kinds = [load_part(name) for name in NAMES.values()]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, base)]


class FakeOpenSpiel:
    """OpenSpiel, which is compiled, so that no audit event says that it opens the files that parameters name."""

    SpielError = ValueError
    __spec__ = True  # `importlib.util.find_spec` finds it

    @staticmethod
    def registered_names() -> list[str]:
        return ["breakthrough", "efg_game"]

    @staticmethod
    def load_game(name: str, parameters: Mapping[str, Any]) -> Any:
        sys.audit("openspiel.load_game", name, parameters)
        raise ValueError("a fake has no games")
