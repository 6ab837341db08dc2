"""What boards are: observations with planes. This module does not import torch."""

from __future__ import annotations

from srl.api.spaces import Box, Dict, Space

BOARD = "observation"
"""Key of the board in observations with other parts."""


def is_board(observation: Space) -> bool:
    """Return whether a space has planes [C, rows, columns] of numbers."""
    return isinstance(observation, Box) and len(observation.shape) == 3


def check_board(observation: Space) -> None:
    if not is_board(observation):
        raise ValueError(
            f"tower 'residual' needs a board, a Box [planes, rows, columns], found {observation}; use tower 'dense'"
        )


def board_of(observation: Space) -> Space:
    """Return the space of the board in an observation."""
    return observation.items.get(BOARD, observation) if isinstance(observation, Dict) else observation
