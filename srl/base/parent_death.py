"""Dying with one's parent: a wish that Linux grants to the process that utters it."""

from __future__ import annotations

import ctypes

_PR_SET_PDEATHSIG = 1


def signal_at_parents_death(number: int) -> None:
    """Have the kernel send us this signal when our parent dies. A parent that died before knows nothing of it: look
    for it afterwards."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
