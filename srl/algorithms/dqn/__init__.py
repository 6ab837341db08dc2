"""The DQN family: Q-learning from replay, with the parts of Rainbow as options."""
