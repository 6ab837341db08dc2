"""Construction of the graph of workers and streams from an environment and options."""
