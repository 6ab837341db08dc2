"""R2D2: Q-learning with a recurrent memory, from replayed sequences."""
