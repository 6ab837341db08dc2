"""Conducting runs: starting, resuming, checkpointing and ending them, on this machine or on a cluster."""
