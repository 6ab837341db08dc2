"""What ends an update that must not be applied."""

from __future__ import annotations


class NotFiniteError(ArithmeticError):
    """A loss, a gradient or a statistic is not finite. All ranks raise it, or none."""
