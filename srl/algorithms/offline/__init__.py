"""Algorithms that learn from recorded data (BC, IQL, TD3+BC, CQL) or from an expert (DAgger)."""
