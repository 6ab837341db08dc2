"""Whether the trees of a policy fit into the memory that a run grants them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srl.search import Search

EVALUATION_LANES = 16
"""Lanes whose trees must always fit: evaluations play as many episodes at once."""


def check_search_memory(search: Search, num_lanes: int, state_bytes: int) -> None:
    """Raise ValueError if searching `num_lanes` trees at once, with states of `state_bytes` each, needs more memory
    than the option `search_memory_mb` allows."""
    needed, limit = math.ceil(search.bytes(num_lanes, state_bytes) / 2**20), search.max_memory_mb
    if needed > limit:
        raise ValueError(
            f"the trees of {num_lanes} searches at once, with {search.num_simulations} simulations, "
            f"{search.num_actions} actions and states of {state_bytes} bytes, need {needed} MB, more than "
            f"search_memory_mb={limit}; use --algo.search-memory-mb {needed}, or fewer simulations or lanes"
        )
