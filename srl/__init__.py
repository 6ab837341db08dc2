"""ReaLly Scalable RL."""
