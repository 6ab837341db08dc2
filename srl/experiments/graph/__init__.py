"""From options to a graph of workers."""
