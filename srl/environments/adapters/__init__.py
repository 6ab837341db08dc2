"""Adapters from Gymnasium, Atari, EnvPool and MiniGrid environments to lanes."""
