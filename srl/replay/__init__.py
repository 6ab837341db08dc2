"""Replay: a memory of past blocks from which trainers draw minibatches."""
