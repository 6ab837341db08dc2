"""Fakes, probe environments and checkers that users can run on their own code."""
