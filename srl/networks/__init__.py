"""Torch modules: encoders, bodies, heads, distributions."""
