"""The agent: the process that runs a host's workers for a controller elsewhere."""
