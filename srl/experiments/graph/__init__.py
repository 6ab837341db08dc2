"""From an environment and options to the graph of workers and streams."""
