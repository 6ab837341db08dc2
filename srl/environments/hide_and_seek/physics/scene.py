"""The MuJoCo model of a world. Layouts are written into a model that is already compiled."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.options import GameOptions
from srl.environments.hide_and_seek.physics.layout import BOX_HALF_SIZES, CUBE, Layout

AGENT_RADIUS, ARM_RADIUS = 0.15, 0.05
ARMS = ((-0.13, -0.075, -0.05), (0.13, -0.075, -0.05))
RAMP_HALF = 0.25
RAMP_VERTICES = tuple((x, y, z) for x in (-0.25, 0.25) for y, z in ((-0.25, -0.25), (-0.25, 0.25), (0.25, -0.25)))
RAMP_CENTROID = (0.0, -1 / 12, -1 / 12)
RAMP_GRAB_HALF = (0.2357, 0.25, 0.3536)
"""Half-sizes of the cuboid used for distances to a ramp: as in the original, those of the mesh in its own frame."""
CYLINDER_HALF_HEIGHT = 0.25
AWAY = -50.0  # m: height of walls that a layout does not use
ARENA = "1M"
"""Memory for one world's contacts, about four times the largest amount ever seen in use."""
BOX_FIELDS = (
    *("geom_size", "geom_rbound", "geom_aabb", "body_pos", "body_inertia", "body_invweight0"),
    *("dof_M0", "dof_invweight0", "dof_length", "bvh_aabb"),
)
"""Model fields that the compiler derives from a box's shape."""


@dataclass(frozen=True)
class SceneKind:
    """Everything that determines the sizes of a model."""

    num_agents: int
    num_ramps: int
    num_boxes: int
    num_walls: int
    wall_friction: float
    floor: float  # m
    cylinder: bool
    timestep: float
    sleep: bool


def scene_kind(options: GameOptions, num_agents: int, num_boxes: int) -> SceneKind:
    return SceneKind(
        num_agents=num_agents,
        num_ramps=options.num_ramps,
        num_boxes=num_boxes,
        num_walls=options.num_walls,
        wall_friction=1.0 if options.scenario == "randomwalls" else 0.01,
        floor=options.floor,
        cylinder=options.task == "shelter",
        timestep=options.timestep,
        sleep=options.sleep,
    )


def to_xml(kind: SceneKind, layout: Layout | None = None) -> str:
    """Return the model as XML. Without a layout, walls are far away and boxes are cubes.

    Bodies are ordered agents, ramps, boxes. Each has four joints: three slides, measured from the lower corner of its
    bounding box, and a hinge.
    """
    kinds = [CUBE] * kind.num_boxes if layout is None else layout.box_kinds.tolist()
    agents = "".join(_agent(index) for index in range(kind.num_agents))
    ramps = "".join(_object(f"ramp{i}", 'type="mesh" mesh="ramp"', RAMP_HALF, 0.1, 0.01) for i in range(kind.num_ramps))
    boxes = "".join(
        _object(f"box{i}", f'type="box" size="{_text(half)}"', half, 0.01, 0.2)
        for i, half in enumerate(BOX_HALF_SIZES[kinds])
    )
    objects = [f"ramp{i}" for i in range(kind.num_ramps)] + [f"box{i}" for i in range(kind.num_boxes)]
    # One weld per agent; its other end is set when the agent grabs an object.
    holders = range(kind.num_agents if objects else 0)
    welds = "".join(f'<weld body1="agent{i}" body2="{objects[0]}" active="false"/>' for i in holders)
    locks = "".join(f'<joint joint1="{name}{axis}" active="false"/>' for name in objects for axis in "xyzr")
    motors = "".join(f'<motor joint="agent{i}{axis}" gear="100"/>' for i in range(kind.num_agents) for axis in "xyr")
    return f"""
<mujoco model="hide-and-seek">
  <compiler angle="radian"/>
  <size memory="{ARENA}"/>
  <option timestep="{kind.timestep}" gravity="0 0 -50" jacobian="dense">
    <flag sleep="{"enable" if kind.sleep else "disable"}" midphase="disable" multiccd="disable"/>
  </option>
  <statistic center="{kind.floor / 2} {kind.floor / 2} 0" extent="{kind.floor}"/>
  <visual><global offwidth="1280" offheight="1280"/><headlight ambient=".4 .4 .4" diffuse=".45 .45 .45"/></visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1=".86 .9 .95" rgb2=".62 .68 .76" width="32" height="192"/>
    <mesh name="ramp" vertex="{" ".join(_text(vertex) for vertex in RAMP_VERTICES)}"/>
  </asset>
  <worldbody>
    <light pos="{kind.floor / 2} {kind.floor / 2} 8" dir="0 0 -1" diffuse=".2 .2 .2" castshadow="false"/>
    <geom name="floor" type="plane" size="{kind.floor / 2} {kind.floor / 2} .1"
      pos="{kind.floor / 2} {kind.floor / 2} 0" friction=".2" rgba=".93 .92 .88 1"/>
    {_walls(kind, layout)}{_cylinder(layout) if kind.cylinder else ""}
    {agents}{ramps}{boxes}
  </worldbody>
  <actuator>{motors}</actuator>
  <equality>{welds}{locks}</equality>
</mujoco>"""


def _text(numbers: Any) -> str:
    return " ".join(repr(float(number)) for number in numbers)


def _walls(kind: SceneKind, layout: Layout | None) -> str:
    rows = np.zeros((0, 5)) if layout is None else layout.walls
    outer = 0 if layout is None else layout.num_outer
    text = ""
    for index in range(kind.num_walls):
        present = index < len(rows)
        x, y, *half = rows[index] if present else (0.0, 0.0, 0.01, 0.01, 0.01)
        z = half[2] if present else AWAY
        color = ".5 .6 .7 .1" if index < outer else ".45 .5 .58 1"
        text += (
            f'<geom name="wall{index}" type="box" size="{_text(half)}" pos="{_text((x, y, z))}" '
            f'contype="{int(present)}" conaffinity="{int(present)}" '
            f'friction="{kind.wall_friction}" group="{0 if index < outer else 1}" rgba="{color}"/>'
        )
    return text


def _cylinder(layout: Layout | None) -> str:
    x, y, radius = (0.0, 0.0, 1.0) if layout is None or layout.cylinder is None else layout.cylinder
    size = _text((radius, CYLINDER_HALF_HEIGHT))
    position = _text((x, y, CYLINDER_HALF_HEIGHT))
    return f'<geom name="cylinder" type="cylinder" size="{size}" pos="{position}" rgba=".8 .6 .2 1"/>'


def _agent(index: int) -> str:
    arms = "".join(
        f'<geom type="sphere" size="{ARM_RADIUS}" pos="{_text(arm)}" mass="0" friction=".01" rgba=".3 .3 .3 1"/>'
        for arm in ARMS
    )
    return (
        f'<body name="agent{index}" pos="{_text((AGENT_RADIUS,) * 3)}">{_joints(f"agent{index}", (10, 10, 1, 10))}'
        f'<geom name="agent{index}" type="sphere" size="{AGENT_RADIUS}" mass="1" friction=".01"/>{arms}</body>'
    )


def _object(name: str, shape: str, half: Any, damping: float, friction: float) -> str:
    corner = np.broadcast_to(np.asarray(half, np.float64), (3,))
    return (
        f'<body name="{name}" pos="{_text(corner)}">{_joints(name, (damping,) * 4)}'
        f'<geom name="{name}" {shape} mass="1" friction="{friction}"/></body>'
    )


def _joints(name: str, damping: tuple[float, ...]) -> str:
    slides = "".join(
        f'<joint name="{name}{axis}" type="slide" axis="{vector}" damping="{damp}"/>'
        for axis, vector, damp in zip("xyz", ("1 0 0", "0 1 0", "0 0 1"), damping, strict=False)
    )
    return f'{slides}<joint name="{name}r" type="hinge" axis="0 0 1" damping="{damping[3]}"/>'


def compile_scene(kind: SceneKind, layout: Layout | None = None) -> Any:
    import mujoco

    return mujoco.MjModel.from_xml_string(to_xml(kind, layout))


@functools.cache
def _box_constants() -> dict[str, Array]:
    """Return the values [kinds, ...] of BOX_FIELDS for each kind of box."""
    kind = SceneKind(0, 0, len(BOX_HALF_SIZES), 0, 1.0, 6.0, False, 0.005, False)
    nowhere = np.zeros((0, 2))
    layout = Layout(np.zeros((0, 5)), 0, 0, nowhere, np.arange(len(BOX_HALF_SIZES)), nowhere, nowhere)
    model = compile_scene(kind, layout)
    bodies = np.arange(len(BOX_HALF_SIZES)) + 1
    return {name: _field(model, name)[_rows_of(model, name, bodies)].copy() for name in BOX_FIELDS}


def _field(model: Any, name: str) -> Array:
    array: Array = getattr(model, name)
    return array


def _rows_of(model: Any, name: str, bodies: Array) -> Array:
    """Return the indices in model field `name` of `bodies` that have one geom each: [bodies], or [bodies, 4] for `dof_`
    fields."""
    if name.startswith("dof_"):
        return np.asarray(model.body_dofadr[bodies])[:, None] + np.arange(4)
    if name.startswith("geom_"):
        return np.asarray(model.body_geomadr[bodies])
    if name.startswith("bvh_"):
        return np.asarray(model.body_bvhadr[bodies])
    return bodies


class Scene:
    """A model and its simulation, reused for successive layouts."""

    def __init__(self, kind: SceneKind) -> None:
        import mujoco

        self.kind = kind
        self.model = model = compile_scene(kind)
        # Agents may also sleep; `Worlds` wakes them when their controls change.
        model.tree_sleep_policy[: kind.num_agents] = int(mujoco.mjtSleepPolicy.mjSLEEP_ALLOWED)
        self.data = mujoco.MjData(model)
        self._reset = mujoco.mj_resetData
        self.qpos, self.qvel = self.data.qpos, self.data.qvel
        self.controls = self.data.ctrl.reshape(-1, 3)  # per agent: along x, along y, about z
        self.eq_active, self.eq_data, self.eq_obj2id = self.data.eq_active, model.eq_data, model.eq_obj2id
        first_box = 1 + kind.num_agents + kind.num_ramps
        boxes = np.arange(first_box, first_box + kind.num_boxes)
        self._targets = [(_field(model, name), _rows_of(model, name, boxes), name) for name in BOX_FIELDS]
        self._walls = slice(1, 1 + kind.num_walls)  # geoms; the floor is the first
        self._cylinder = 1 + kind.num_walls
        self._first_ramp = 4 * kind.num_agents
        self._first_box = self._first_ramp + 4 * kind.num_ramps

    def arrange(self, layout: Layout) -> None:
        """Write a layout into the model and restart its simulation. It is then bit-identical to a new model."""
        model, constants = self.model, _box_constants()
        for array, rows, name in self._targets:
            array[rows] = constants[name][layout.box_kinds]
        self._arrange_walls(layout)
        if layout.cylinder is not None:
            x, y, radius = layout.cylinder
            row = self._cylinder
            model.geom_pos[row, :2] = x, y
            model.geom_size[row, 0] = radius
            model.geom_rbound[row] = np.hypot(radius, CYLINDER_HALF_HEIGHT)
            model.geom_aabb[row, 3:] = radius, radius, CYLINDER_HALF_HEIGHT
        self._reset(model, self.data)
        for first, places in ((0, layout.agents), (self._first_ramp, layout.ramps), (self._first_box, layout.boxes)):
            rows = self.qpos[first : first + 4 * len(places)].reshape(-1, 4)
            rows[:, :2] = places

    def _arrange_walls(self, layout: Layout) -> None:
        model, count = self.model, len(layout.walls)
        position, size = np.empty((self.kind.num_walls, 3)), np.full((self.kind.num_walls, 3), 0.01)
        position[:] = 0.0, 0.0, AWAY
        position[:count, :2], position[:count, 2] = layout.walls[:, :2], layout.walls[:, 4]
        size[:count] = layout.walls[:, 2:]
        model.geom_pos[self._walls], model.geom_size[self._walls] = position, size
        model.geom_rbound[self._walls] = np.sqrt(np.square(size).sum(axis=1))
        model.geom_aabb[self._walls, 3:] = size
        index = np.arange(self.kind.num_walls)
        model.geom_contype[self._walls] = model.geom_conaffinity[self._walls] = index < count  # fewer pairs to check
        outer = index < layout.num_outer
        model.geom_rgba[self._walls, 3] = np.where(outer, 0.1, 1.0)
        model.geom_group[self._walls] = np.where(outer, 0, 1)
