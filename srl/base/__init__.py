"""Building blocks independent of reinforcement learning: trees, configs, wire format, shared memory, clocks, seeds."""
