"""Pictures of environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from srl.base.tree import Array


def picture(name: str, render: Callable[[], Any]) -> Array:
    """What an environment draws, uint8 [height, width, 3]; ValueError where that is nothing."""
    try:
        drawn = render()
    except Exception as error:
        raise ValueError(f"environment {name} cannot draw itself here: {error!r}") from error
    if not isinstance(drawn, np.ndarray) or drawn.ndim != 3 or drawn.shape[2] < 3:
        raise ValueError(
            f"environment {name} cannot be filmed: render() gave {type(drawn).__name__}, wanted an array "
            "[height, width, 3] as for render_mode='rgb_array'"
        )
    return drawn[:, :, :3].astype(np.uint8, copy=False)
