"""What agents perceive: lines of sight, lidar and distances to objects, in compiled loops over all worlds.

MuJoCo's own rays give the same answers (tests compare 10^5 of them) at seven to ten times the cost.
"""

from __future__ import annotations

import math

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.perception.shapes import MISS, box, compiled, cylinder, ramp, sphere
from srl.environments.hide_and_seek.physics.scene import (
    AGENT_RADIUS,
    ARM_RADIUS,
    ARMS,
    CYLINDER_HALF_HEIGHT,
    RAMP_CENTROID,
    RAMP_GRAB_HALF,
)
from srl.environments.hide_and_seek.physics.worlds import Worlds

NUM_RAYS = 30
LIDAR_RANGE = 6.0
"""Lidar value of a ray that hits nothing. Hits farther away still report their distance."""
CONE = 3 / 8 * math.pi
CONE_COSINE = math.cos(CONE)

ARM_X, ARM_Y, ARM_Z = ARMS[1]
CENTROID_Y, CENTROID_Z = RAMP_CENTROID[1:]
GRAB_X, GRAB_Y, GRAB_Z = RAMP_GRAB_HALF
STEP = 2 * math.pi / NUM_RAYS
_ANGLES = np.arange(NUM_RAYS) * STEP
COSINES, SINES = np.cos(_ANGLES), np.sin(_ANGLES)


@compiled
def _hit(
    entity: int, num_agents: int, num_ramps: int, center: Array, turn: Array, half: Array,
    ox: float, oy: float, oz: float, dx: float, dy: float, dz: float,
) -> float:  # fmt: skip
    """Return the distance at which a ray first hits an entity, in multiples of its direction (dx, dy, dz), or MISS."""
    px, py, pz = ox - center[entity, 0], oy - center[entity, 1], oz - center[entity, 2]
    # No point of the entity is farther from its center than a corner of its bounding box.
    reach = half[entity, 0] * half[entity, 0] + half[entity, 1] * half[entity, 1] + half[entity, 2] * half[entity, 2]
    along = px * dx + py * dy + pz * dz
    length = dx * dx + dy * dy + dz * dz
    distance = px * px + py * py + pz * pz
    if distance > reach and (along > 0.0 or distance * length - along * along > reach * length):
        return MISS
    c, s = turn[entity, 0], turn[entity, 1]
    lx, ly = c * px + s * py, c * py - s * px
    ux, uy = c * dx + s * dy, c * dy - s * dx
    if entity >= num_agents + num_ramps:
        return box(lx, ly, pz, ux, uy, dz, half[entity, 0], half[entity, 1], half[entity, 2])
    if entity >= num_agents:
        return ramp(lx, ly, pz, ux, uy, dz)
    ball = sphere(lx, ly, pz, ux, uy, dz, AGENT_RADIUS)
    right = sphere(lx - ARM_X, ly - ARM_Y, pz - ARM_Z, ux, uy, dz, ARM_RADIUS)
    left = sphere(lx + ARM_X, ly - ARM_Y, pz - ARM_Z, ux, uy, dz, ARM_RADIUS)
    return min(ball, right, left)


@compiled
def _wall_hit(walls: Array, w: int, ox: float, oy: float, oz: float, dx: float, dy: float, dz: float) -> float:
    return box(ox - walls[w, 0], oy - walls[w, 1], oz - walls[w, 4], dx, dy, dz, walls[w, 2], walls[w, 3], walls[w, 4])


@compiled
def _cylinder_hit(pillar: Array, ox: float, oy: float, oz: float, dx: float, dy: float, dz: float) -> float:
    return cylinder(
        ox - pillar[0], oy - pillar[1], oz - CYLINDER_HALF_HEIGHT, dx, dy, dz, pillar[2], CYLINDER_HALF_HEIGHT
    )


@compiled
def _blocked(
    without: int, target: int, limit: float, num_agents: int, num_ramps: int, center: Array, turn: Array, half: Array,
    present: Array, walls: Array, num_walls: int, pillar: Array,
    ox: float, oy: float, oz: float, dx: float, dy: float, dz: float,
) -> bool:  # fmt: skip
    """Return whether a ray hits anything but the entities `without` and `target` at a distance below `limit`."""
    for w in range(num_walls):
        if _wall_hit(walls, w, ox, oy, oz, dx, dy, dz) < limit:
            return True
    for e in range(len(center)):
        if e in (without, target) or not present[e]:
            continue
        if _hit(e, num_agents, num_ramps, center, turn, half, ox, oy, oz, dx, dy, dz) < limit:
            return True
    return pillar[2] > 0.0 and _cylinder_hit(pillar, ox, oy, oz, dx, dy, dz) < limit


@compiled
def _in_cone(yaw_cosine: float, yaw_sine: float, dx: float, dy: float) -> bool:
    """Return whether direction (dx, dy) is in an agent's field of view. An agent looks along its own -y axis."""
    return yaw_sine * dx - yaw_cosine * dy >= CONE_COSINE * math.sqrt(dx * dx + dy * dy)


@compiled
def _scan_circle(best: Array, px: float, py: float, radius: float) -> None:
    """Lower `best[k]` to the distance at which lidar ray k, cast from (0, 0), hits a circle around (px, py)."""
    far = px * px + py * py
    c = far - radius * radius
    first, last = 0, NUM_RAYS - 1
    if c > 0.0:
        middle, width = math.atan2(py, px), math.asin(radius / math.sqrt(far))
        first, last = math.ceil((middle - width) / STEP), math.floor((middle + width) / STEP)
    for index in range(first, last + 1):
        k = index % NUM_RAYS
        b = px * COSINES[k] + py * SINES[k]
        root = b * b - c
        if root >= 0.0:
            root = math.sqrt(root)
            hit = b - root if b >= root else b + root
            if 0.0 <= hit < best[k]:
                best[k] = hit


@compiled
def _scan_rectangle(
    best: Array, px: float, py: float, c: float, s: float, low_x: float, high_x: float, low_y: float, high_y: float
) -> None:
    """Lower `best[k]` to the distance at which lidar ray k, cast from (0, 0), hits a rectangle: [low_x, high_x] x
    [low_y, high_y], rotated by the angle with cosine c and sine s, then shifted by (px, py)."""
    mx, my = (low_x + high_x) / 2, (low_y + high_y) / 2
    qx, qy = px + c * mx - s * my, py + s * mx + c * my  # its center
    hx, hy = high_x - mx, high_y - my
    far, reach = math.sqrt(qx * qx + qy * qy), math.sqrt(hx * hx + hy * hy)
    first, last = 0, NUM_RAYS - 1
    if far > reach:
        middle, width = math.atan2(qy, qx), math.asin(reach / far)
        first, last = math.ceil((middle - width) / STEP), math.floor((middle + width) / STEP)
    lx, ly = -(c * qx + s * qy), -(c * qy - s * qx)
    for index in range(first, last + 1):
        k = index % NUM_RAYS
        ux, uy = c * COSINES[k] + s * SINES[k], c * SINES[k] - s * COSINES[k]
        hit = box(lx, ly, 0.0, ux, uy, 0.0, hx, hy, 1.0)
        if hit < best[k]:
            best[k] = hit


@compiled
def _scan_face(best: Array, ahead: float, aside: float, half: float, across: Array, along: Array) -> None:
    """Lower `best[k]` to the distance at which lidar ray k hits a wall's near face, of half-length `half`, at signed
    distance `ahead` and sideways offset `aside` from the agent. A ray that misses this face misses the wall."""
    for k in range(NUM_RAYS):
        if across[k] * ahead > 0.0:
            hit = ahead / across[k]
            if abs(hit * along[k] - aside) <= half and hit < best[k]:
                best[k] = hit


@compiled
def _scan_walls(best: Array, walls: Array, num_walls: int, ox: float, oy: float, oz: float) -> None:
    for w in range(num_walls):
        if not 0.0 <= oz <= 2.0 * walls[w, 4]:
            continue
        x, y, hx, hy = walls[w, 0] - ox, walls[w, 1] - oy, walls[w, 2], walls[w, 3]
        if abs(x) > hx and abs(y) <= hy:
            _scan_face(best, x - math.copysign(hx, x), y, hy, COSINES, SINES)
        elif abs(y) > hy and abs(x) <= hx:
            _scan_face(best, y - math.copysign(hy, y), x, hx, SINES, COSINES)
        else:
            _scan_rectangle(best, x, y, 1.0, 0.0, -hx, hx, -hy, hy)


@compiled
def _scan(
    agent: int, num_agents: int, num_ramps: int, center: Array, turn: Array, half: Array, present: Array,
    walls: Array, num_walls: int, pillar: Array, best: Array,
) -> None:  # fmt: skip
    """Write one agent's lidar distances to `best`. Rays are horizontal, so only cross sections at its height matter."""
    ox, oy, oz = center[agent, 0], center[agent, 1], center[agent, 2]
    best[:] = MISS
    _scan_walls(best, walls, num_walls, ox, oy, oz)
    for e in range(len(center)):
        if e == agent or not present[e]:
            continue
        px, py, up = center[e, 0] - ox, center[e, 1] - oy, oz - center[e, 2]
        c, s = turn[e, 0], turn[e, 1]
        if e >= num_agents:
            if abs(up) <= half[e, 2]:
                top = half[e, 1] if e >= num_agents + num_ramps else -up
                _scan_rectangle(best, px, py, c, s, -half[e, 0], half[e, 0], -half[e, 1], top)
            continue
        if abs(up) < AGENT_RADIUS:
            _scan_circle(best, px, py, math.sqrt(AGENT_RADIUS * AGENT_RADIUS - up * up))
        over = up - ARM_Z
        if abs(over) < ARM_RADIUS:
            radius = math.sqrt(ARM_RADIUS * ARM_RADIUS - over * over)
            for x in (-ARM_X, ARM_X):
                _scan_circle(best, px + c * x - s * ARM_Y, py + s * x + c * ARM_Y, radius)
    if pillar[2] > 0.0 and 0.0 <= oz <= 2 * CYLINDER_HALF_HEIGHT:
        _scan_circle(best, pillar[0] - ox, pillar[1] - oy, pillar[2])
    for k in range(NUM_RAYS):
        if best[k] >= MISS:
            best[k] = LIDAR_RANGE


@compiled
def _distance(agent: int, entity: int, is_ramp: bool, center: Array, turn: Array, half: Array) -> float:
    """Return the distance from an agent's center to an object's cuboid."""
    px, py = center[agent, 0] - center[entity, 0], center[agent, 1] - center[entity, 1]
    c, s = turn[entity, 0], turn[entity, 1]
    hx, hy, hz = half[entity, 0], half[entity, 1], half[entity, 2]
    if is_ramp:
        hx, hy, hz = GRAB_X, GRAB_Y, GRAB_Z
    x = max(abs(c * px + s * py) - hx, 0.0)
    y = max(abs(c * py - s * px) - hy, 0.0)
    z = max(abs(center[agent, 2] - center[entity, 2]) - hz, 0.0)
    return math.sqrt(x * x + y * y + z * z)


@compiled
def perceive(
    num_agents: int, num_ramps: int, q: Array, half: Array, present: Array, walls: Array, num_walls: Array,
    pillar: Array, food: Array, lidar: Array, sees: Array, sees_food: Array, reach: Array,
) -> None:  # fmt: skip
    """Write what each agent in each world sees, its lidar, and its distances to objects.

    Inputs: q [N, E, 4], half [N, E, 3], present [N, E], walls [N, W, 5], num_walls [N], pillar [N, 3], food [N, F, 3].
    Outputs: lidar [A, N, 30, 1]; whether each agent sees each entity, sees [N, A, E], and food, sees_food [N, A, F];
    distance to each object, reach [N, A, E - A].
    """
    num_entities = q.shape[1]
    center, turn = np.empty((num_entities, 3)), np.empty((num_entities, 2))
    best = np.empty(NUM_RAYS)
    for n in range(len(q)):
        # Making a view costs as much as a ray, so make each only once per world.
        half_n, present_n, walls_n, pillar_n = half[n], present[n], walls[n], pillar[n]
        for e in range(num_entities):
            for axis in range(3):
                center[e, axis] = q[n, e, axis] + half_n[e, axis]
            turn[e, 0], turn[e, 1] = math.cos(q[n, e, 3]), math.sin(q[n, e, 3])
        for a in range(num_agents):
            if not present_n[a]:
                lidar[a, n], sees[n, a], sees_food[n, a], reach[n, a] = 0.0, False, False, MISS
                continue
            _scan(a, num_agents, num_ramps, center, turn, half_n, present_n, walls_n, num_walls[n], pillar_n, best)
            for k in range(NUM_RAYS):
                lidar[a, n, k, 0] = best[k]
            ox, oy, oz = center[a, 0], center[a, 1], center[a, 2]
            for e in range(num_entities):
                if e >= num_agents:
                    is_ramp = e < num_agents + num_ramps
                    far = MISS
                    if present_n[e]:
                        far = _distance(a, e, is_ramp, center, turn, half_n)
                    reach[n, a, e - num_agents] = far
                sees[n, a, e] = False
                if e == a or not present_n[e]:
                    continue
                # As in the original, the direction is between lower corners, not centers.
                if not _in_cone(turn[a, 0], turn[a, 1], q[n, e, 0] - q[n, a, 0], q[n, e, 1] - q[n, a, 1]):
                    continue
                tx, ty, tz = center[e, 0], center[e, 1], center[e, 2]
                if num_agents <= e < num_agents + num_ramps:
                    tx -= turn[e, 1] * CENTROID_Y
                    ty += turn[e, 0] * CENTROID_Y
                    tz += CENTROID_Z
                dx, dy, dz = tx - ox, ty - oy, tz - oz
                first = _hit(e, num_agents, num_ramps, center, turn, half_n, ox, oy, oz, dx, dy, dz)
                sees[n, a, e] = first < MISS and not _blocked(
                    a, e, first, num_agents, num_ramps, center, turn, half_n, present_n, walls_n, num_walls[n],
                    pillar_n, ox, oy, oz, dx, dy, dz,
                )  # fmt: skip
            for f in range(food.shape[1]):
                sees_food[n, a, f] = False
                if _in_cone(turn[a, 0], turn[a, 1], food[n, f, 0] - q[n, a, 0], food[n, f, 1] - q[n, a, 1]):
                    dx, dy, dz = food[n, f, 0] - ox, food[n, f, 1] - oy, food[n, f, 2] - oz
                    sees_food[n, a, f] = not _blocked(
                        a, a, 1.0, num_agents, num_ramps, center, turn, half_n, present_n, walls_n, num_walls[n],
                    pillar_n, ox, oy, oz, dx, dy, dz,
                    )  # fmt: skip


@compiled
def count_exposed(
    num_agents: int, num_ramps: int, q: Array, half: Array, present: Array, walls: Array, num_walls: Array,
    pillar: Array, origins: Array, exposed: Array,
) -> None:  # fmt: skip
    """Set `exposed[n]` to how many of the `origins` [K, 3] have an unobstructed line to the cylinder's center."""
    num_entities = q.shape[1]
    center, turn = np.empty((num_entities, 3)), np.empty((num_entities, 2))
    for n in range(len(q)):
        for e in range(num_entities):
            for axis in range(3):
                center[e, axis] = q[n, e, axis] + half[n, e, axis]
            turn[e, 0], turn[e, 1] = math.cos(q[n, e, 3]), math.sin(q[n, e, 3])
        nothing = np.zeros(3)
        count = 0
        for k in range(len(origins)):
            ox, oy, oz = origins[k, 0], origins[k, 1], origins[k, 2]
            dx, dy, dz = pillar[n, 0] - ox, pillar[n, 1] - oy, CYLINDER_HALF_HEIGHT - oz
            first = _cylinder_hit(pillar[n], ox, oy, oz, dx, dy, dz)
            if not _blocked(
                -1, -1, first, num_agents, num_ramps, center, turn, half[n], present[n], walls[n], num_walls[n],
                nothing, ox, oy, oz, dx, dy, dz,
            ):  # fmt: skip
                count += 1
        exposed[n] = count


class Perception:
    """What all agents perceive, in arrays that `update` overwrites."""

    def __init__(self, worlds: Worlds, num_food: int, lidar: Array) -> None:
        num, agents, objects = worlds.num, worlds.num_agents, worlds.num_objects
        self._worlds, self._lidar = worlds, lidar
        self.sees = np.zeros((num, agents, agents + objects), bool)
        self.sees_food = np.zeros((num, agents, num_food), bool)
        self.reach = np.zeros((num, agents, objects))  # m, to each object

    @property
    def agents(self) -> Array:
        """[N, A, A]: element [n, i, j] is whether agent i sees agent j in world n."""
        return self.sees[:, :, : self._worlds.num_agents]

    @property
    def objects(self) -> Array:
        """[N, A, O]: element [n, i, j] is whether agent i sees object j in world n."""
        return self.sees[:, :, self._worlds.num_agents :]

    def update(self, food: Array) -> None:
        w = self._worlds
        perceive(
            w.num_agents, w.num_ramps, w.q, w.half, w.present, w.walls, w.num_walls, w.pillar, food, self._lidar,
            self.sees, self.sees_food, self.reach,
        )  # fmt: skip
