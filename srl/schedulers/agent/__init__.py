"""The agent: the process that runs the workers of a host for a controller elsewhere."""
