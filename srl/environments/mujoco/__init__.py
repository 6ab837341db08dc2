"""Gymnasium's MuJoCo tasks as lanes."""
