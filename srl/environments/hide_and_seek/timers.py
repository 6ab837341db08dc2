"""MuJoCo's timers, which nobody reads here."""

from __future__ import annotations

from numba import cfunc


@cfunc("float64()", cache=True)
def _no_time() -> float:
    return 0.0


def stop_clock() -> None:
    """Spare MuJoCo asking for the time a dozen times in each of its steps: 3 % of the physics of these small worlds.

    `MjData.timer` then stays at zero in this process. A clock that somebody else has set is left alone.
    """
    import mujoco

    if mujoco.get_mjcb_time() is None:
        mujoco.set_mjcb_time(_no_time.ctypes)
