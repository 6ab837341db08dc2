"""Many worlds in parallel: their simulations, and their state as arrays over all worlds."""

from __future__ import annotations

import traceback
from collections import defaultdict
from typing import Any

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions, most
from srl.environments.hide_and_seek.physics.layout import BOX_HALF_SIZES, Layout
from srl.environments.hide_and_seek.physics.scene import AGENT_RADIUS, RAMP_HALF, Scene, SceneKind, scene_kind
from srl.environments.mujoco.callbacks import log_warnings, stop_clock

MAX_SPEED = 50.0
"""Speed in m/s that is reached only if a simulation is unstable, which MuJoCo does not always report."""
NUDGE = 1e-9
"""Speed in m/s that wakes a sleeping body. Contacts also wake it; changed controls, locks and holds do not."""


class Worlds:
    """`num` worlds. Entities are ordered hiders, seekers, ramps, boxes; absent ones are rows of zeros.

    All bodies have the same four joints, so positions and velocities are the complete state; nothing else is read from
    the simulation.
    """

    def __init__(self, options: GameOptions, num: int) -> None:
        import mujoco

        log_warnings()
        stop_clock()
        self._step_physics = mujoco.mj_step
        self.options, self.num = options, num
        self.num_hiders, self.num_seekers = most(options.num_hiders), most(options.num_seekers)
        self.num_agents = agents = options.most_agents
        self.num_ramps, self.num_boxes = options.num_ramps, most(options.num_boxes)
        self.num_objects = self.num_ramps + self.num_boxes
        entities = agents + self.num_objects
        self.q = np.zeros((num, entities, 4))  # x, y, z of the lower corner, yaw
        self.v = np.zeros((num, entities, 4))
        self.half = np.zeros((num, entities, 3))  # half-sizes
        self.half[:, :agents], self.half[:, agents : agents + self.num_ramps] = AGENT_RADIUS, RAMP_HALF
        self.present = np.zeros((num, entities), bool)
        self.walls = np.zeros((num, options.num_walls, 5))
        self.num_walls = np.zeros(num, np.int64)
        self.pillar = np.zeros((num, 3))  # x, y and radius of the cylinder, if there is one
        self.layouts: list[Layout | None] = [None] * num
        self._scenes: list[Scene | None] = [None] * num
        self._spare: dict[SceneKind, list[Scene]] = defaultdict(list)
        # For each world: positions and velocities in its simulation, and the agents that are present.
        self._qpos: list[Array] = [np.zeros(0)] * num
        self._qvel: list[Array] = [np.zeros(0)] * num
        self._rows: list[Array] = [np.zeros(0, np.int64)] * num
        self._controls = np.zeros((num, agents, 3))
        self._bodies = np.full((num, entities), -1)  # [N, E]: index of each entity in its simulation

    def arrange(self, world: int, layout: Layout) -> None:
        """Start a new episode in a world."""
        scene = self._scene_for(world, layout)
        scene.arrange(layout)
        self._scenes[world], self.layouts[world] = scene, layout
        hiders, seekers = layout.num_hiders, len(layout.agents) - layout.num_hiders
        objects = self.num_ramps + len(layout.boxes)
        bodies = self._bodies[world]
        bodies[:], count = -1, 0
        for first, number in ((0, hiders), (self.num_hiders, seekers), (self.num_agents, objects)):
            bodies[first : first + number] = np.arange(count, count + number)
            count += number
        self._qpos[world], self._qvel[world] = scene.qpos, scene.qvel
        self._rows[world] = np.flatnonzero(bodies[: self.num_agents] >= 0)
        self.present[world] = bodies >= 0
        self.q[world], self.v[world] = 0, 0
        self._controls[world] = 0
        first_box = self.num_agents + self.num_ramps
        self.half[world, first_box:] = 0
        self.half[world, first_box : first_box + len(layout.boxes)] = BOX_HALF_SIZES[layout.box_kinds]
        self.num_walls[world] = len(layout.walls)
        self.walls[world, : len(layout.walls)] = layout.walls
        self.pillar[world] = layout.cylinder or 0
        self._gather(world)

    def _scene_for(self, world: int, layout: Layout) -> Scene:
        """Return a simulation with the required sizes; keep the current one for later if its sizes differ."""
        kind = scene_kind(self.options, len(layout.agents), len(layout.boxes))
        current = self._scenes[world]
        if current is not None:
            if current.kind == kind:
                return current
            self._spare[current.kind].append(current)
        return self._spare[kind].pop() if self._spare[kind] else Scene(kind)

    def grab(self, world: int, agent: int, target: int) -> None:
        """Attach object `target` to an agent at its current relative position; -1 releases the object it holds."""
        scene, body = self._scene(world), int(self._bodies[world, agent])
        self._nudge(world, agent)
        if scene.eq_active[body]:
            self._nudge(world, self._bodies[world].tolist().index(scene.eq_obj2id[body] - 1))
        if target < 0:
            scene.eq_active[body] = 0
            return
        entity = self.num_agents + target
        self._nudge(world, entity)
        scene.eq_obj2id[body] = 1 + self._bodies[world, entity]
        x, y, z = self.q[world, entity, :3] + self.half[world, entity] - self.q[world, agent, :3] - AGENT_RADIUS
        yaw = self.q[world, agent, 3]
        cosine, sine = np.cos(yaw), np.sin(yaw)
        half_turn = (self.q[world, entity, 3] - yaw) / 2
        relative = (cosine * x + sine * y, cosine * y - sine * x, z, np.cos(half_turn), 0.0, 0.0, np.sin(half_turn))
        scene.eq_data[body, :3], scene.eq_data[body, 3:10], scene.eq_data[body, 10] = 0.0, relative, 1.0
        scene.eq_active[body] = 1

    def lock(self, world: int, target: int, locked: bool) -> None:
        """Fix the four joints of an object at their current positions, or release them."""
        scene, entity = self._scene(world), self.num_agents + target
        body = int(self._bodies[world, entity])
        agents = len(self._rows[world])
        rows = slice(agents + 4 * (body - agents), agents + 4 * (body - agents) + 4)
        self._nudge(world, entity)
        if locked:
            scene.eq_data[rows, 0] = self.q[world, entity]
        scene.eq_active[rows] = locked

    def step(self, controls: Array, moving: Array) -> dict[int, str]:
        """Advance worlds that are `moving` [N] with constant `controls` [N, A, 3]; return error messages by world."""
        self._wake(controls, moving)
        self._controls[moving] = controls[moving]
        failures: dict[int, str] = {}
        step, substeps = self._step_physics, self.options.substeps
        full = self.num_agents
        for world in np.flatnonzero(moving).tolist():
            scene = self._scene(world)
            rows = self._rows[world]
            scene.controls[:] = controls[world] if len(rows) == full else controls[world, rows]
            try:
                step(scene.model, scene.data, substeps)
            except Exception:
                failures[world] = traceback.format_exc()
        # Bodies are ordered like the entities that are present, so one read serves all worlds.
        self.q[self.present] = np.concatenate(self._qpos).reshape(-1, 4)
        self.v[self.present] = np.concatenate(self._qvel).reshape(-1, 4)
        speed = np.abs(self.v[:, :, :3])
        if not speed.max() < MAX_SPEED:
            for world in np.flatnonzero(~(speed.max(axis=(1, 2)) < MAX_SPEED)).tolist():
                failures.setdefault(world, f"a body moves at {speed[world].max()} m/s: the simulation is unstable")
        return failures

    def _wake(self, controls: Array, moving: Array) -> None:
        """Wake sleeping agents whose controls change: MuJoCo itself only wakes bodies that move."""
        if not self.options.sleep:
            return
        still = ~self.v[:, : self.num_agents].any(axis=2) & moving[:, None]
        changed = (controls != self._controls).any(axis=2)
        for world, agent in zip(*np.nonzero(still & changed & self.present[:, : self.num_agents]), strict=True):
            self._nudge(world, agent)

    def _nudge(self, world: int, entity: int) -> None:
        if not self.v[world, entity].any():
            self._scene(world).qvel[4 * self._bodies[world, entity]] = NUDGE

    def _gather(self, world: int) -> None:
        here = self.present[world]
        self.q[world, here] = self._qpos[world].reshape(-1, 4)
        self.v[world, here] = self._qvel[world].reshape(-1, 4)

    def _scene(self, world: int) -> Scene:
        scene = self._scenes[world]
        assert scene is not None
        return scene

    def simulation(self, world: int) -> tuple[Any, Any]:
        """Return a world's MuJoCo model and data, for reading."""
        scene = self._scene(world)
        return scene.model, scene.data

    def close(self) -> None:
        self._scenes = [None] * self.num
        self._qpos, self._qvel = [np.zeros(0)] * self.num, [np.zeros(0)] * self.num
        self._spare.clear()
