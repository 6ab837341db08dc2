"""Environments as lanes: Gymnasium, native vector environments, Atari, MuJoCo, PettingZoo, hide-and-seek."""
