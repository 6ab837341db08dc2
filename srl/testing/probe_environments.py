"""Environments with known values and best actions, small enough to be learned in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from srl.base.tree import Array
from srl.environments.conversion import OBSERVATION

if TYPE_CHECKING:
    from srl.testing.goal_environments import BitFlip
    from srl.testing.probe_games import TurnBonus, TwoStep

Step = tuple[Array, float, bool, bool, dict[str, Any]]


class _Probe(gymnasium.Env[Array, int]):  # type: ignore[misc]
    """Base class: observations are one or two numbers in [-1, 1], actions are 0 and 1."""

    size = 1

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (self.size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.t = 0
        self.cue = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.cue = float(self.np_random.choice((-1.0, 1.0)))
        return self.observe(), {}

    def observe(self) -> Array:
        """Return a constant observation. It is not 0, because an input of 0 would train only the biases of the first
        layer."""
        return np.ones(1, np.float32)

    def result(self, reward: float, terminated: bool = False, truncated: bool = False) -> Step:
        return self.observe(), reward, terminated, truncated, {}


class ConstantReward(_Probe):
    """One step with reward 1. The value is 1."""

    def step(self, action: int) -> Step:
        return self.result(1.0, terminated=True)


class SeenReward(_Probe):
    """One step. The observation is 1 or -1, and the reward equals it. So does the value."""

    def observe(self) -> Array:
        return np.array([self.cue], np.float32)

    def step(self, action: int) -> Step:
        return self.result(self.cue, terminated=True)


class DelayedReward(_Probe):
    """Two steps with observations -1 and 1 and rewards 0 and 1. The values are the discount and 1."""

    def observe(self) -> Array:
        return np.array([-1.0 if self.t == 0 else 1.0], np.float32)

    def step(self, action: int) -> Step:
        self.t += 1
        return self.result(float(self.t == 2), terminated=self.t == 2)


class ChosenReward(_Probe):
    """One step. Action 1 gives reward 1, action 0 gives reward -1."""

    def step(self, action: int) -> Step:
        return self.result(1.0 if action == 1 else -1.0, terminated=True)


class CreditedReward(_Probe):
    """Two steps. The first action must match the observation (1: action 1, -1: action 0); the reward follows in the
    second."""

    size = 2

    def __init__(self) -> None:
        super().__init__()
        self.is_correct = False

    def observe(self) -> Array:
        return np.array([self.cue if self.t == 0 else 0.0, float(self.t > 0)], np.float32)

    def step(self, action: int) -> Step:
        if self.t == 0:
            self.is_correct = (action == 1) == (self.cue > 0)
        self.t += 1
        reward = (1.0 if self.is_correct else -1.0) if self.t == 2 else 0.0
        return self.result(reward, terminated=self.t == 2)


class Endless(_Probe):
    """Steps with the same observation and reward until a time limit. The value is reward / (1 - discount). With
    `varies`, an episode has `length` steps on average and may end after any of them. Otherwise, a policy with a memory
    could tell its last observation from all others, and would never learn the value from which it bootstraps."""

    def __init__(self, length: int = 5, reward: float = 0.2, terminates: bool = False, varies: bool = False) -> None:
        super().__init__()
        self.length, self.reward, self.terminates, self.varies = length, reward, terminates, varies

    def step(self, action: int) -> Step:
        self.t += 1
        ended = self.t >= self.length
        if self.varies:
            ended = bool(self.np_random.random() < 1.0 / self.length)
        return self.result(self.reward, terminated=ended and self.terminates, truncated=ended and not self.terminates)


class Remembered(_Probe):
    """The last action must match the first observation, which is visible only in the first step."""

    size = 2

    def __init__(self, length: int = 3) -> None:
        super().__init__()
        self.length = length

    def observe(self) -> Array:
        return np.array([self.cue if self.t == 0 else 0.0, float(self.t == self.length - 1)], np.float32)

    def step(self, action: int) -> Step:
        self.t += 1
        last = self.t == self.length
        return self.result(float(last and (action == 1) == (self.cue > 0)), terminated=last)


class Explored(_Probe):
    """Action 0 or action 1 gives reward 1, the other one 0, for a whole episode. Only the rewards show which one it is:
    a policy needs its memory and the previous action and reward to get more than half of the `length` rewards."""

    def __init__(self, length: int = 8) -> None:
        super().__init__()
        self.length = length

    def step(self, action: int) -> Step:
        self.t += 1
        return self.result(float((action == 1) == (self.cue > 0)), truncated=self.t == self.length)


class Leaking(_Probe):
    """The action must match an observation from the previous episode, which takes a memory that leaks between
    episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.before = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.before = self.cue
        return super().reset(seed=seed)

    def observe(self) -> Array:
        return np.array([0.0 if self.t == 0 else self.cue], np.float32)

    def step(self, action: int) -> Step:
        self.t += 1
        reward = float(self.t == 1 and (action == 1) == (self.before > 0))
        return self.result(reward, terminated=self.t == 2)


class Masked(gymnasium.Env[Any, int]):  # type: ignore[misc]
    """One step with three actions. The mask (key `action_mask`) forbids action 2, which gives reward -1."""

    def __init__(self) -> None:
        seen = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        mask = gymnasium.spaces.Box(0, 1, (3,), np.int8)
        self.observation_space = gymnasium.spaces.Dict({"observation": seen, "action_mask": mask})
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observe(), (0.0, 1.0, -1.0)[int(action)], True, False, {}

    def _observe(self) -> Any:
        return {"observation": np.ones(1, np.float32), "action_mask": np.array([1, 1, 0], np.int8)}


class Stated(gymnasium.ObservationWrapper[Any, int, Any]):  # type: ignore[misc]
    """A probe for critics that see more than their actors. The additional `keys`, which only the critic reads, repeat
    the observation. With `hidden`, the actor sees ones instead of the observation."""

    def __init__(self, probe: gymnasium.Env[Any, int], keys: Sequence[str], hidden: bool) -> None:
        super().__init__(probe)
        self._keys, self._hidden = tuple(keys), hidden
        space = probe.observation_space
        parts = dict(space.spaces) if isinstance(space, gymnasium.spaces.Dict) else {OBSERVATION: space}
        self.observation_space = gymnasium.spaces.Dict({**parts, **dict.fromkeys(self._keys, parts[OBSERVATION])})

    def observation(self, observation: Any) -> Any:
        parts = observation if isinstance(observation, Mapping) else {OBSERVATION: observation}
        seen = parts[OBSERVATION]
        own = {OBSERVATION: np.ones_like(seen)} if self._hidden else {}
        return {**parts, **own, **dict.fromkeys(self._keys, seen)}


class RealActions(gymnasium.ActionWrapper[Any, Any, int]):  # type: ignore[misc]
    """A probe whose action is a number between -1 and 1: action 1 if it is positive, otherwise action 0."""

    def __init__(self, probe: gymnasium.Env[Any, int]) -> None:
        super().__init__(probe)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action(self, action: Array) -> int:
        return int(action[0] > 0.0)


def variant(
    probe: str, keys: Sequence[str] = (), hidden: bool = False, real: bool = False, **kwargs: Any
) -> gymnasium.Env[Any, Any]:
    """Build the probe class named `probe`, with observation `keys` that only the critic reads, or with a real number
    as action."""
    built = globals()[probe](**kwargs)
    if real:
        built = RealActions(built)
    return Stated(built, keys, hidden) if keys else built


def follow(observation: Any) -> Array:
    """Return the best actions [B] in observations of `ChosenReward`, `CreditedReward` and `Masked`: an expert for
    DAgger."""
    seen = observation[OBSERVATION] if isinstance(observation, Mapping) else observation
    actions: Array = (np.asarray(seen)[:, 0] > 0.0).astype(np.int64)
    return actions


def follow_real(observation: Any) -> Array:
    """Return `follow` as real numbers [B, 1]."""
    actions: Array = (follow(observation)[:, None] - 0.5).astype(np.float32)
    return actions


def bit_flip(**kwargs: Any) -> BitFlip:
    """Build the goal environment."""
    from srl.testing.goal_environments import BitFlip

    return BitFlip(**kwargs)


def turn_bonus(**kwargs: Any) -> TurnBonus:
    """Build the two-agent game. It needs the extra `pettingzoo`."""
    from srl.testing.probe_games import TurnBonus

    return TurnBonus(**kwargs)


def two_step(**kwargs: Any) -> TwoStep:
    """Build the two-step game of two agents. It needs the extra `pettingzoo`."""
    from srl.testing.probe_games import TwoStep

    return TwoStep(**kwargs)
