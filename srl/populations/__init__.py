"""Players beside the one that learns: its past versions, and whom it meets when."""
