"""Spaces that the networks support, without importing torch, so checks in the controller and command line are fast."""
