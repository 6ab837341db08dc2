"""Helpers that only SRL's own tests and benchmarks use."""

from pathlib import Path

PURSUIT = f"pettingzoo:{Path(__file__).with_name('pursuit.py')}:pursuit"
"""The game of `pursuit.py`, named by its file so that worker processes find it, too."""
