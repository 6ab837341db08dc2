"""Errors with a meaning for the run."""


class RunBroken(RuntimeError):
    """Nothing that a restarted worker could mend: the run must end and show this message."""
