"""SAC, TD3 and DDPG: actors and ensembles of critics that learn from replayed transitions."""
