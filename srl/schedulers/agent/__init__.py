"""The agent: the process that runs workers on a host for a controller elsewhere."""
