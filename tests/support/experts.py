"""Experts for DAgger."""

from __future__ import annotations

import numpy as np


def balances(observation: np.ndarray) -> np.ndarray:
    """Return actions [B] that balance the pole of CartPole for the whole episode."""
    return (observation @ np.array([0.1, 0.5, 1.0, 1.0]) > 0.0).astype(np.int64)


def confused(observation: np.ndarray) -> np.ndarray:
    return np.zeros((len(observation), 3))
