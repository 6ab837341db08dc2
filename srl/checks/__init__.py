"""Checks that train: an algorithm on probes, and a running job under injected faults."""
