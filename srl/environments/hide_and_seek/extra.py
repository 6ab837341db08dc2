"""What hide-and-seek needs beyond SRL itself."""

from __future__ import annotations

import importlib.util

PACKAGES = ("mujoco", "numba")
COMMAND = 'pip install "srl[hide-and-seek]"'
PETTINGZOO_IS_MISSING = (
    "hide-and-seek as a PettingZoo environment needs pettingzoo, which is not installed; "
    'pip install "srl[hide-and-seek,pettingzoo]"'
)


def check_installed(variant: str) -> None:
    """ImportError, with the command that helps, where a package is missing."""
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f"environment hide-and-seek/{variant} needs {' and '.join(missing)}, which is not installed; {COMMAND}"
        )
