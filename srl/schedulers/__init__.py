"""Where workers run: in one thread, in processes, on a cluster."""
