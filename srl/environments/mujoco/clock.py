"""MuJoCo's clock, which nobody reads here."""

from __future__ import annotations

import ctypes


def stop_clock() -> None:
    """Spare MuJoCo asking for the time a dozen times in each of its steps: a tenth of the physics of small bodies.

    The Python bindings give MuJoCo a clock that it cannot be rid of, only another one. A function of ours would be
    called in Python, so we lend it the C library's only function that takes nothing and returns a double: what
    `MjData.timer` shows in this process means nothing from now on. A clock that somebody else has set is left alone.
    """
    import mujoco

    if mujoco.get_mjcb_time() is None:
        mujoco.set_mjcb_time(ctypes.CFUNCTYPE(ctypes.c_double)(("drand48", ctypes.CDLL(None))))
