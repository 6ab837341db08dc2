"""Environments as lanes: adapters for Gymnasium, native vector environments, MuJoCo, Atari, PettingZoo."""
