"""MuZero: a learned model of the environment, and a search in it that chooses actions."""
