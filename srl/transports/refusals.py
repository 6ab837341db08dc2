"""A count of the peers that were turned away, by reason, so that attacks and mistakes show in the figures."""

from __future__ import annotations

import logging
from collections import Counter

logger = logging.getLogger(__name__)


class Refusals:
    """One per transport. The first of each reason is a warning, the others are for the debug log: no floods."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, reason: str, detail: str) -> None:
        self.counts[reason] += 1
        logger.log(logging.WARNING if self.counts[reason] == 1 else logging.DEBUG, "refused (%s): %s", reason, detail)

    @property
    def total(self) -> int:
        return self.counts.total()
