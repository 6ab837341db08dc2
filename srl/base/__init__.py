"""Foundations without any reinforcement learning: trees, configuration, wire format, clocks, seeds."""
