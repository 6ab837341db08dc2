"""Gymnasium's MuJoCo tasks (v5) with humanoids and arms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from srl.base.tree import Array
from srl.environments.mujoco.tasks import NoisyStart, Range, Scene, State, between, squares, velocity

HUMANOID_FIELDS = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")


@dataclass(frozen=True)
class _HumanBody(NoisyStart):
    """Base class for both humanoid tasks, with their observations."""

    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    def observe(self, scene: Scene, now: State) -> Array:
        skipped = 2 * self.exclude_current_positions_from_observation
        parts = [now["qpos"][:, skipped:], now["qvel"]]
        for field in HUMANOID_FIELDS:
            if getattr(self, f"include_{field}_in_observation"):
                rows = now[field][:, 6:] if field == "qfrc_actuator" else now[field][:, 1:]
                parts.append(rows.reshape(len(rows), -1))
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Humanoid(_HumanBody):
    needs: ClassVar[tuple[str, ...]] = (*HUMANOID_FIELDS, "xipos")
    xml_file: str = "humanoid.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.25
    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_range: Range = (-float("inf"), 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (1.0, 2.0)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        healthy = between(now["qpos"][:, 2], self.healthy_z_range)
        mass = scene.model.body_mass / scene.model.body_mass.sum()  # [bodies]
        forward = self.forward_reward_weight * velocity(
            scene, before["xipos"][:, :, 0] @ mass, now["xipos"][:, :, 0] @ mass
        )
        contact = np.clip(self.contact_cost_weight * squares(now["cfrc_ext"]), *self.contact_cost_range)
        reward = forward + self.healthy_reward * healthy - self.ctrl_cost_weight * squares(action) - contact
        return reward, ~healthy & self.terminate_when_unhealthy


@dataclass(frozen=True)
class HumanoidStandup(_HumanBody):
    needs: ClassVar[tuple[str, ...]] = HUMANOID_FIELDS
    xml_file: str = "humanoidstandup.xml"
    frame_skip: int = 5
    uph_cost_weight: float = 1
    """Accepted but unused, as in Gymnasium."""
    ctrl_cost_weight: float = 0.1
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: Range = (-float("inf"), 10.0)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        upward = now["qpos"][:, 2] / scene.model.opt.timestep
        impact = np.clip(self.impact_cost_weight * squares(now["cfrc_ext"]), *self.impact_cost_range)
        return upward - self.ctrl_cost_weight * squares(action) - impact + 1, np.zeros(len(action), bool)


@dataclass(frozen=True)
class Reacher:
    needs: ClassVar[tuple[str, ...]] = ("xpos",)
    xml_file: str = "reacher.xml"
    frame_skip: int = 2
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 1.0

    def begin(self, scene: Scene, random: np.random.Generator, num: int) -> tuple[Array, Array]:
        qpos = scene.qpos + random.uniform(-0.1, 0.1, (num, len(scene.qpos)))
        qvel = scene.qvel + random.uniform(-0.005, 0.005, (num, len(scene.qvel)))
        # Uniform in a disc of radius 0.2, like Gymnasium's rejection sampling from a square.
        radius, angle = 0.2 * np.sqrt(random.random(num)), 2 * np.pi * random.random(num)
        qpos[:, -2:] = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
        qvel[:, -2:] = 0
        return qpos, qvel

    def _distance(self, scene: Scene, now: State) -> Array:  # [L, 3]
        tip, target = (scene.model.body(name).id for name in ("fingertip", "target"))
        distance: Array = now["xpos"][:, tip] - now["xpos"][:, target]
        return distance

    def observe(self, scene: Scene, now: State) -> Array:
        angles = now["qpos"][:, :2]
        rest = [now["qpos"][:, 2:], now["qvel"][:, :2], self._distance(scene, now)[:, :2]]
        return np.concatenate([np.cos(angles), np.sin(angles), *rest], axis=1)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        distance = np.sqrt(squares(self._distance(scene, now)))
        reward = -self.reward_dist_weight * distance - self.reward_control_weight * squares(action)
        return reward, np.zeros(len(action), bool)


@dataclass(frozen=True)
class Pusher:
    needs: ClassVar[tuple[str, ...]] = ("xpos",)
    xml_file: str = "pusher_v5.xml"
    frame_skip: int = 5
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 0.1

    def begin(self, scene: Scene, random: np.random.Generator, num: int) -> tuple[Array, Array]:
        qpos = np.tile(scene.qpos, (num, 1))
        qvel = scene.qvel + random.uniform(-0.005, 0.005, (num, len(scene.qvel)))
        cylinder = np.zeros((num, 2))
        while (near := np.linalg.norm(cylinder, axis=1) <= 0.17).any():  # too near the goal, at (0, 0)
            cylinder[near] = random.uniform((-0.3, -0.2), (0.0, 0.2), (int(near.sum()), 2))
        qpos[:, -4:-2], qpos[:, -2:] = cylinder, 0
        qvel[:, -4:] = 0
        return qpos, qvel

    def observe(self, scene: Scene, now: State) -> Array:
        bodies = [now["xpos"][:, scene.model.body(name).id] for name in ("tips_arm", "object", "goal")]
        return np.concatenate([now["qpos"][:, :7], now["qvel"][:, :7], *bodies], axis=1)

    def score(self, scene: Scene, before: State, now: State, action: Array) -> tuple[Array, Array]:
        tip, thing, goal = (now["xpos"][:, scene.model.body(name).id] for name in ("tips_arm", "object", "goal"))
        near, far = np.sqrt(squares(thing - tip)), np.sqrt(squares(thing - goal))
        reward = -self.reward_near_weight * near - self.reward_dist_weight * far
        return reward - self.reward_control_weight * squares(action), np.zeros(len(action), bool)
