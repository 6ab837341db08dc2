"""Rewards, observations and terminations of Gymnasium's MuJoCo tasks (v5), as functions of arrays over lanes.

A task's fields are the options of Gymnasium's constructor, with the same names and defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from srl.base.tree import Array

Range: TypeAlias = tuple[float, float]
State: TypeAlias = Mapping[str, Array]
"""Fields of MjData, each [L, ...]; `qpos` [L, nq] and `qvel` [L, nv] are always among them."""


@dataclass(frozen=True)
class Scene:
    """The parts of the model that a task reads."""

    model: Any  # mujoco.MjModel
    qpos: Array  # [nq] at the start of episodes, before noise
    qvel: Array  # [nv]
    dt: float
    """Simulated seconds per environment step."""


class Task(Protocol):
    needs: ClassVar[tuple[str, ...]]
    """MjData fields that the task reads in addition to `qpos` and `qvel`."""

    @property
    def xml_file(self) -> str: ...

    @property
    def frame_skip(self) -> int: ...

    def begin(self, scene: Scene, random: np.random.Generator, num: int) -> tuple[Array, Array]:
        """Draw the initial `qpos` [num, nq] and `qvel` [num, nv] of `num` episodes."""

    def observe(self, scene: Scene, now: State) -> Array:
        """Return the observations [L, n]."""

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        """Return reward [L] and terminated [L] for the step from `before` to `now`."""


def between(values: Array, limits: Range) -> Array:
    return (limits[0] < values) & (values < limits[1])


def squares(values: Array) -> Array:
    """Return the sum of squares in each lane, [L]."""
    flat = values.reshape(len(values), -1)
    total: Array = np.einsum("ij,ij->i", flat, flat)
    return total


def velocity(scene: Scene, before: Array, now: Array) -> Array:
    return (now - before) / scene.dt


@dataclass(frozen=True)
class NoisyStart:
    """Base class for tasks whose episodes start near the model's initial state."""

    needs: ClassVar[tuple[str, ...]] = ()
    normal_velocity: ClassVar[bool] = False
    """Whether the noise on initial velocities is normal rather than uniform."""
    reset_noise_scale: float = 0.1

    def begin(self, scene: Scene, random: np.random.Generator, num: int) -> tuple[Array, Array]:
        scale, shape = self.reset_noise_scale, (num, len(scene.qvel))
        qpos = scene.qpos + random.uniform(-scale, scale, (num, len(scene.qpos)))
        noise = scale * random.standard_normal(shape) if self.normal_velocity else random.uniform(-scale, scale, shape)
        return qpos, scene.qvel + noise


@dataclass(frozen=True)
class _Racer(NoisyStart):
    """A task that rewards forward speed and small actions and never terminates."""

    num_excluded: ClassVar[int]
    """Number of positions that `exclude_current_positions_from_observation` excludes."""
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    exclude_current_positions_from_observation: bool = True

    def observe(self, scene: Scene, now: State) -> Array:
        skipped = self.num_excluded * self.exclude_current_positions_from_observation
        return np.concatenate((now["qpos"][:, skipped:], now["qvel"]), axis=1)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        forward = self.forward_reward_weight * velocity(scene, before["qpos"][:, 0], now["qpos"][:, 0])
        return forward - self.ctrl_cost_weight * squares(action), np.zeros(len(action), bool)


@dataclass(frozen=True)
class HalfCheetah(_Racer):
    normal_velocity: ClassVar[bool] = True
    num_excluded: ClassVar[int] = 1
    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5


@dataclass(frozen=True)
class Swimmer(_Racer):
    num_excluded: ClassVar[int] = 2
    xml_file: str = "swimmer.xml"
    frame_skip: int = 4
    ctrl_cost_weight: float = 1e-4


@dataclass(frozen=True)
class Walker2d(NoisyStart):
    xml_file: str = "walker2d_v5.xml"
    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (0.8, 2.0)
    healthy_angle_range: Range = (-1.0, 1.0)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True

    def observe(self, scene: Scene, now: State) -> Array:
        skipped = int(self.exclude_current_positions_from_observation)
        return np.concatenate((now["qpos"][:, skipped:], np.clip(now["qvel"], -10, 10)), axis=1)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        healthy = self.healthy(now)
        forward = self.forward_reward_weight * velocity(scene, before["qpos"][:, 0], now["qpos"][:, 0])
        reward = forward + self.healthy_reward * healthy - self.ctrl_cost_weight * squares(action)
        return reward, ~healthy & self.terminate_when_unhealthy

    def healthy(self, now: State) -> Array:
        qpos = now["qpos"]
        return between(qpos[:, 1], self.healthy_z_range) & between(qpos[:, 2], self.healthy_angle_range)


@dataclass(frozen=True)
class Hopper(Walker2d):
    xml_file: str = "hopper.xml"
    healthy_z_range: Range = (0.7, float("inf"))
    healthy_angle_range: Range = (-0.2, 0.2)
    healthy_state_range: Range = (-100.0, 100.0)

    def healthy(self, now: State) -> Array:
        inside = between(now["qpos"][:, 2:], self.healthy_state_range).all(axis=1)
        return super().healthy(now) & inside & between(now["qvel"], self.healthy_state_range).all(axis=1)


@dataclass(frozen=True)
class Ant(NoisyStart):
    needs: ClassVar[tuple[str, ...]] = ("xpos", "cfrc_ext")
    normal_velocity: ClassVar[bool] = True
    xml_file: str = "ant.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    main_body: int | str = 1
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (0.2, 1.0)
    contact_force_range: Range = (-1.0, 1.0)
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    def observe(self, scene: Scene, now: State) -> Array:
        skipped = 2 * self.exclude_current_positions_from_observation
        parts = [now["qpos"][:, skipped:], now["qvel"]]
        if self.include_cfrc_ext_in_observation:
            forces = np.clip(now["cfrc_ext"][:, 1:], *self.contact_force_range)
            parts.append(forces.reshape(len(forces), -1))
        return np.concatenate(parts, axis=1)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        body = scene.model.body(self.main_body).id
        low, high = self.healthy_z_range
        z = now["qpos"][:, 2]
        finite = np.isfinite(now["qpos"]).all(axis=1) & np.isfinite(now["qvel"]).all(axis=1)
        healthy = finite & (low <= z) & (z <= high)
        forward = self.forward_reward_weight * velocity(scene, before["xpos"][:, body, 0], now["xpos"][:, body, 0])
        contact = self.contact_cost_weight * squares(np.clip(now["cfrc_ext"], *self.contact_force_range))
        reward = forward + self.healthy_reward * healthy - self.ctrl_cost_weight * squares(action) - contact
        return reward, ~healthy & self.terminate_when_unhealthy


@dataclass(frozen=True)
class InvertedPendulum(NoisyStart):
    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    reset_noise_scale: float = 0.01

    def observe(self, scene: Scene, now: State) -> Array:
        return np.concatenate((now["qpos"], now["qvel"]), axis=1)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        finite = np.isfinite(now["qpos"]).all(axis=1) & np.isfinite(now["qvel"]).all(axis=1)
        upright = finite & (np.abs(now["qpos"][:, 1]) <= 0.2)
        return upright.astype(np.float64), ~upright


@dataclass(frozen=True)
class InvertedDoublePendulum(NoisyStart):
    needs: ClassVar[tuple[str, ...]] = ("site_xpos", "qfrc_constraint")
    normal_velocity: ClassVar[bool] = True
    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    healthy_reward: float = 10.0

    def observe(self, scene: Scene, now: State) -> Array:
        qpos = now["qpos"]
        bounded = [np.clip(now["qvel"], -10, 10), np.clip(now["qfrc_constraint"], -10, 10)[:, :1]]
        return np.concatenate([qpos[:, :1], np.sin(qpos[:, 1:]), np.cos(qpos[:, 1:]), *bounded], axis=1)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        x, y = now["site_xpos"][:, 0, 0], now["site_xpos"][:, 0, 2]
        first, second = now["qvel"][:, 1], now["qvel"][:, 2]
        fallen = y <= 1
        distance = 0.01 * x**2 + (y - 2) ** 2
        return self.healthy_reward * ~fallen - distance - 1e-3 * first**2 - 5e-3 * second**2, fallen
