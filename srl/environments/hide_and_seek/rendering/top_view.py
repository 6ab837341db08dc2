"""A map of a world from above: walls, objects and their locks, agents and their fields of view."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from srl.base.tree import Array
from srl.environments.hide_and_seek.perception.rays import CONE
from srl.environments.hide_and_seek.physics.layout import SITE_SIZE
from srl.environments.hide_and_seek.physics.scene import AGENT_RADIUS
from srl.environments.hide_and_seek.rules.game import Game

FINE = 2  # drawn at twice the size and scaled down for smooth edges
MARGIN = 0.35  # m around the floor
CONE_RADIUS = 1.6  # m; drawn length of the field of view, which itself has no limit
FLOOR, OUTSIDE, OUTER, INNER = (246, 244, 238), (222, 222, 222), (150, 158, 168), (84, 92, 104)
HIDER, SEEKER, BOX, RAMP, LOCKED = (38, 110, 200), (208, 58, 52), (226, 176, 84), (150, 118, 196), (20, 20, 20)
FOOD, SITE, PILLAR, INK = (70, 160, 70), (90, 160, 150), (206, 156, 60), (50, 50, 50)


def draw_map(game: Game, world: int, size: int) -> Array:
    """Return a map of a world as an image [size, size, 3] uint8."""
    return _Map(game, world, size).draw()


class _Map:
    def __init__(self, game: Game, world: int, size: int) -> None:
        from PIL import Image, ImageDraw

        self._game, self._world, self._size = game, world, size
        self._image = Image.new("RGB", (size * FINE, size * FINE), OUTSIDE)
        self._pen = ImageDraw.Draw(self._image, "RGBA")
        floor = game.options.floor
        center = game.worlds.q[world, :, :2] + game.worlds.half[world, :, :2]
        here = center[game.worlds.present[world]]
        # Objects may be carried out of an open arena; the map grows with them, within limits.
        low = max(-floor, min(0.0, float(here.min(initial=0.0)) - 0.3))
        high = min(2 * floor, max(floor, float(here.max(initial=floor)) + 0.3))
        self._low, self._high = low - MARGIN, high + MARGIN
        self._unit = size * FINE / (self._high - self._low)

    def draw(self) -> Array:
        game, world, worlds = self._game, self._world, self._game.worlds
        floor = game.options.floor
        self._polygon([(0, 0), (floor, 0), (floor, floor), (0, floor)], FLOOR)
        self._marks()
        for agent in range(worlds.num_agents):
            if worlds.present[world, agent]:
                self._cone(agent)
        layout = worlds.layouts[world]
        for index, (x, y, hx, hy, _) in enumerate(worlds.walls[world, : worlds.num_walls[world]]):
            outer = layout is not None and index < layout.num_outer
            self._polygon(_corners(x, y, hx, hy, 0.0), OUTER if outer else INNER)
        order = np.argsort(worlds.q[world, :, 2] + worlds.half[world, :, 2], kind="stable")  # draw the highest last
        for entity in order.tolist():
            if worlds.present[world, entity]:
                self._entity(entity)
        self._caption()
        image = self._image.resize((self._size, self._size), resample=4)  # box filter
        return np.asarray(image, np.uint8).copy()

    def _entity(self, entity: int) -> None:
        worlds, world = self._game.worlds, self._world
        if entity < worlds.num_agents:
            self._agent(entity)
            return
        x, y, _ = worlds.q[world, entity, :3] + worlds.half[world, entity]
        hx, hy, _ = worlds.half[world, entity]
        yaw, thing = worlds.q[world, entity, 3], entity - worlds.num_agents
        corners = _corners(x, y, hx, hy, yaw)
        locked = self._game.manipulation.locked[world, thing]
        outline = self._team_color(int(self._game.manipulation.owner[world, thing])) if locked else INK
        self._polygon(corners, RAMP if thing < worlds.num_ramps else BOX, outline, 3.0 if locked else 1.0)
        if thing < worlds.num_ramps:
            self._arrow_up(x, y, yaw)
        if locked:
            self._padlock(x, y, outline)

    def _agent(self, agent: int) -> None:
        worlds, world = self._game.worlds, self._world
        x, y = worlds.q[world, agent, :2] + AGENT_RADIUS
        z, yaw = worlds.q[world, agent, 2], worlds.q[world, agent, 3]
        color = self._team_color(agent)
        if z > 0.2:  # off the floor
            self._circle(x, y, AGENT_RADIUS + 0.06, None, (255, 255, 255))
            self._circle(x, y, AGENT_RADIUS + 0.09, None, INK)
        held = int(self._game.manipulation.held[world, agent])
        if held >= 0:
            entity = worlds.num_agents + held
            tx, ty = worlds.q[world, entity, :2] + worlds.half[world, entity, :2]
            self._line([(x, y), (tx, ty)], color, 4.0)
        self._circle(x, y, AGENT_RADIUS, color, INK)
        ahead = (math.sin(yaw), -math.cos(yaw))
        for side in (-0.06, 0.06):
            eye_x, eye_y = x + 0.08 * ahead[0] - side * ahead[1], y + 0.08 * ahead[1] + side * ahead[0]
            self._circle(eye_x, eye_y, 0.035, (255, 255, 255), None)

    def _cone(self, agent: int) -> None:
        """Draw an agent's field of view: its cone, which ends where the lidar hits something."""
        worlds, world, game = self._game.worlds, self._world, self._game
        x, y = worlds.q[world, agent, :2] + AGENT_RADIUS
        heading = worlds.q[world, agent, 3] - math.pi / 2
        lidar = game.observation.lidar[agent, world, :, 0]
        points = [(x, y)]
        for angle in np.linspace(heading - CONE, heading + CONE, 46):
            place = (angle % (2 * math.pi)) / (2 * math.pi) * len(lidar)
            reach = min(CONE_RADIUS, float(lidar[round(place) % len(lidar)]))
            points.append((x + reach * math.cos(angle), y + reach * math.sin(angle)))
        self._polygon(points, (*self._team_color(agent), 46))

    def _marks(self) -> None:
        """Draw the marks on the floor: food, sites, the pillar."""
        worlds, world = self._game.worlds, self._world
        layout = worlds.layouts[world]
        food = self._game.food
        for (x, y, _), health in zip(food.places[world], food.health[world], strict=True):
            self._circle(x, y, 0.08, FOOD if health > 0 else (200, 210, 200), INK)
        for x, y in layout.sites if layout is not None else ():
            self._polygon(_corners(x, y, SITE_SIZE / 2, SITE_SIZE / 2, 0.0), (*SITE, 110), SITE, 2.0)
        x, y, radius = worlds.pillar[world]
        if radius > 0:
            self._circle(x, y, radius, PILLAR, INK)

    def _arrow_up(self, x: float, y: float, yaw: float) -> None:
        """Draw three lines across a ramp, longer where it is higher."""
        for at, width in ((0.15, 0.06), (0.0, 0.12), (-0.15, 0.2)):
            ends = [_turned(x, y, side, at, yaw) for side in (-width, width)]
            self._line(ends, INK, 1.5)

    def _padlock(self, x: float, y: float, color: tuple[int, int, int]) -> None:
        self._circle(x, y + 0.05, 0.05, None, LOCKED, 2.5)
        self._polygon(_corners(x, y - 0.03, 0.08, 0.06, 0.0), color, LOCKED, 1.0)

    def _caption(self) -> None:
        from PIL import ImageFont

        game, step = self._game, int(self._game.steps[self._world])
        phase = ""
        if game.options.task == "hide-and-seek":
            hiders = game.worlds.num_hiders
            seen = bool(game.perception.agents[self._world, hiders:, :hiders].any())
            main = "hiders are seen" if seen else "hiders are hidden"
            phase = "preparation" if step < game.options.num_preparation else main
        text = f"step {step} / {game.options.horizon}   {phase}"
        height = max(10, self._size // 45) * FINE
        self._pen.text((height // 2, height // 4), text, INK, font=ImageFont.load_default(height))

    def _team_color(self, agent: int) -> tuple[int, int, int]:
        return HIDER if agent < self._game.worlds.num_hiders else SEEKER

    def _pixel(self, x: float, y: float) -> tuple[float, float]:
        return (x - self._low) * self._unit, (self._high - y) * self._unit

    def _polygon(self, points: Any, fill: Any, outline: Any = None, width: float = 1.0) -> None:
        pixels = [self._pixel(*point) for point in points]
        self._pen.polygon(pixels, fill=fill)
        if outline is not None:
            self._pen.line([*pixels, pixels[0]], fill=outline, width=round(width * FINE), joint="curve")

    def _line(self, points: Any, color: Any, width: float) -> None:
        self._pen.line([self._pixel(*point) for point in points], fill=color, width=round(width * FINE))

    def _circle(self, x: float, y: float, radius: float, fill: Any, outline: Any, width: float = 1.0) -> None:
        px, py = self._pixel(x, y)
        reach = radius * self._unit
        box = (px - reach, py - reach, px + reach, py + reach)
        self._pen.ellipse(box, fill=fill, outline=outline, width=round(width * FINE))


def _turned(x: float, y: float, dx: float, dy: float, yaw: float) -> tuple[float, float]:
    cosine, sine = math.cos(yaw), math.sin(yaw)
    return x + cosine * dx - sine * dy, y + sine * dx + cosine * dy


def _corners(x: float, y: float, hx: float, hy: float, yaw: float) -> list[tuple[float, float]]:
    return [_turned(x, y, dx * hx, dy * hy, yaw) for dx, dy in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
