"""Algorithms: a config that makes matching policies and trainers."""
