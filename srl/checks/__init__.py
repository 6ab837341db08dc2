"""Checks that involve training: algorithms on probe environments, and running jobs under injected faults."""
