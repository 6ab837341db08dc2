"""VDN and QMIX: Q-learning for teams, with the value of a joint action composed of the agents' values."""
