"""Replay workers: they keep past blocks, and trainers draw from them."""
