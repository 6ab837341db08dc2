"""Foundations without reinforcement learning: trees, configurations, the wire format, shared memory, clocks, seeds."""
