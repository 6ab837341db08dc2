"""Where MuJoCo's warnings go."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def quiet() -> None:
    """Have MuJoCo's warnings logged, for those who look for them. By default they go to the terminal, and to a file
    MUJOCO_LOG.TXT in whatever directory one is. A handler that somebody else has set is left alone."""
    import mujoco

    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(logger.debug)
