"""EnvPool environments as lanes. They are written in C++, and their episodes end by the next-step rule."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.api.lanes import named_texts
from srl.base.errors import nearest
from srl.base.tree import Array
from srl.environments.adapters.autoreset import FACTS
from srl.environments.adapters.vector import VectorLanes
from srl.environments.factories import NamedConfig


@dataclass(frozen=True)
class EnvPoolConfig(NamedConfig):
    """An EnvPool task, such as ``Pong-v5``, with EnvPool's options; one thread unless `num_threads` says otherwise.

    EnvPool preprocesses Atari games like :mod:`srl.environments.adapters.atari`, without sticky actions
    (`repeat_action_probability`). Rewards are replaced with their sign unless `reward_clip=False`. The reported return
    is the true score of whole games, even with clipped rewards or one episode per life (`episodic_life`).
    """

    def environment_name(self) -> str:
        return f"envpool:{self.name}"

    def named_code(self) -> tuple[str, ...]:
        return named_texts(self.kwargs)  # `build` accepts only EnvPool's own tasks

    def build(self, num_copies: int) -> VectorLanes:
        check_installed(self.name)
        import envpool

        if self.name not in (known := envpool.list_all_envs()):
            raise ValueError(f"EnvPool has no environment {self.name!r}{nearest(self.name, known)}")
        options = {**prepared(envpool.make_spec(self.name).config), **self.kwargs}
        return VectorLanes(self.environment_name(), lambda: EnvPoolVector(self.name, num_copies, options))


def prepared(config: Any) -> dict[str, Any]:
    """Return defaults that match :mod:`srl.environments.adapters.atari`; `config` is EnvPool's config of the task."""
    return {"reward_clip": True} if hasattr(config, "reward_clip") else {}


def check_installed(name: str) -> None:
    if importlib.util.find_spec("envpool") is None:
        raise ValueError(
            f'environment envpool:{name} needs EnvPool, which is not installed; pip install "srl-rl[envpool]"'
        )


class EnvPoolVector:
    """An EnvPool environment. It is recreated at each reset, because its seed is fixed at construction."""

    def __init__(self, name: str, num_envs: int, kwargs: Mapping[str, Any]) -> None:
        self.num_envs = num_envs
        self._name, self._kwargs = name, kwargs
        self._pool = self._make(0)
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space

    def _make(self, seed: int) -> Any:
        import envpool

        options = {"num_threads": 1, **self._kwargs}
        return envpool.make(self._name, env_type="gymnasium", num_envs=self.num_envs, seed=seed, **options)

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self._pool.close()
        self._pool = self._make(seed)
        self._score = np.zeros(self.num_envs, np.float64)
        self._steps = np.zeros(self.num_envs, np.int64)
        self._ended = np.zeros(self.num_envs, bool)
        self._game_over = np.zeros(self.num_envs, bool)  # games that ended, as opposed to lives
        native, _ = self._pool.reset()
        return native, {}

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        if actions.dtype == np.int64:
            actions = actions.astype(np.int32)
        native, reward, terminated, truncated, info = self._pool.step(actions)
        if "reward" not in info:
            return native, reward, terminated, truncated, {}
        return native, reward, terminated, truncated, self._true_score(info, terminated, truncated)

    def _true_score(self, info: Mapping[str, Any], terminated: Array, truncated: Array) -> dict[str, Any]:
        self._score[self._game_over], self._steps[self._game_over] = 0, 0
        self._score += info["reward"]
        self._steps += ~self._ended
        self._ended = terminated | truncated
        self._game_over = self._ended & (info["terminated"].astype(bool) | truncated)
        if not self._ended.any():
            return {}
        score = np.where(self._ended & ~self._game_over, np.nan, self._score).astype(np.float32)
        return {FACTS: {"return": score, "length": self._steps.copy()}}

    def close(self) -> None:
        self._pool.close()
