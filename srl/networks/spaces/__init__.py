"""Spaces that the networks support. Without torch, so that a controller and the command line can ask quickly."""
