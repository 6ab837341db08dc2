"""Neural networks: encoders, memories, heads and action distributions."""
