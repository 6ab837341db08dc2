"""What can go wrong with an environment beyond what its lane can bear."""

from __future__ import annotations


class EnvironmentBroken(RuntimeError):
    """An environment could not be built, or not be replaced after it failed; the message holds the facts."""
