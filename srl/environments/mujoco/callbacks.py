"""MuJoCo's warning and clock callbacks."""

from __future__ import annotations

import ctypes
import logging

logger = logging.getLogger(__name__)


def log_warnings() -> None:
    """Send MuJoCo's warnings to the log, at debug level.

    By default, they go to the terminal and to a file MUJOCO_LOG.TXT in the working directory. A handler that was set
    earlier is kept.
    """
    import mujoco

    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(logger.debug)


def stop_clock() -> None:
    """Keep MuJoCo from reading the clock a dozen times per step, which is a tenth of the cost of small simulations.

    The Python bindings give MuJoCo a clock that cannot be removed, only replaced. A Python function would cost more, so
    the replacement is the C library's only function without arguments that returns a double. The numbers in
    `MjData.timer` are meaningless in this process from now on. A clock that was set earlier is kept.
    """
    import mujoco

    if mujoco.get_mjcb_time() is None:
        mujoco.set_mjcb_time(ctypes.CFUNCTYPE(ctypes.c_double)(("drand48", ctypes.CDLL(None))))
