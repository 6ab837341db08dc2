"""Algorithms that learn from recorded data (BC, IQL, TD3+BC) or from an expert (DAgger)."""
