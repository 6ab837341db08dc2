"""PPO and the algorithms that share its trainer: options, batches, losses and phases."""
