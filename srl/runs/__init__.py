"""What a run leaves on disk: its directory, checkpoints and metrics."""
