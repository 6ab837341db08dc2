"""CartPole as a simulator: the physics of Gymnasium's CartPole-v1 (Barto et al. 1983)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from srl.api.simulator import Moves, Simulator, SimulatorConfig, SimulatorSpec
from srl.api.spaces import Box
from srl.base.tree import Array, ArraySpec

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MOST_X, MOST_ANGLE = 2.4, 12 * 2 * math.pi / 360


@dataclass(frozen=True)
class CartPoleConfig(SimulatorConfig):
    max_moves: int = 500

    def __post_init__(self) -> None:
        if self.max_moves < 1:
            raise ValueError(f"max_moves must be at least 1, found {self.max_moves}")

    def build(self) -> CartPole:
        return CartPole(self.max_moves)

    def title(self) -> str:
        return "cartpole"


class CartPole(Simulator):
    """A state has position, velocity, angle, angular velocity, the number of moves, and whether the pole has fallen."""

    def __init__(self, max_moves: int) -> None:
        self.spec = SimulatorSpec(
            "cartpole", 2, Box((4,)), ArraySpec((6,), "float64"), max_moves, lowest=0.0, highest=float(max_moves)
        )

    def begin(self, num: int, random: np.random.Generator) -> Array:
        state = np.zeros((num, 6))
        state[:, :4] = random.uniform(-0.05, 0.05, (num, 4))
        return state

    def step(self, state: Array, action: Array) -> Moves:
        x, x_dot, angle, angle_dot, count, _ = state.T
        force = np.where(np.asarray(action) == 1, FORCE, -FORCE)
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + POLE * HALF_LENGTH * angle_dot**2 * sin) / (CART + POLE)
        turn = (GRAVITY * sin - cos * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cos**2 / (CART + POLE)))
        shift = push - POLE * HALF_LENGTH * turn * cos / (CART + POLE)
        x, angle = x + SECONDS * x_dot, angle + SECONDS * angle_dot
        x_dot, angle_dot = x_dot + SECONDS * shift, angle_dot + SECONDS * turn
        ended = (np.abs(x) > MOST_X) | (np.abs(angle) > MOST_ANGLE)
        after = np.stack((x, x_dot, angle, angle_dot, count + 1, ended), 1)
        legal = np.repeat(~ended[:, None], 2, 1)
        return Moves(after, np.ones(len(state), np.float32), ended, np.zeros(len(state), np.int64), legal)

    def legal(self, state: Array) -> Array:
        return np.repeat(state[:, 5:] == 0, 2, 1)

    def observe(self, state: Array) -> Array:
        return state[:, :4].astype(np.float32)

    def ply(self, state: Array) -> Array:
        return state[:, 4].astype(np.int64)
