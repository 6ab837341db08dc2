"""Means with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z = 1.959963984540054  # number of standard deviations around the mean that contain 95 % of a normal distribution


@dataclass(frozen=True)
class Mean:
    """A mean, and half the width of its 95 % confidence interval, which is infinite for a single value."""

    value: float
    interval: float
    count: int


def t_quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t distribution, which for few values is far above the normal
    distribution's 1.96. It is exact for one and two degrees of freedom. For more, it is the Cornish-Fisher expansion
    around the normal quantile (Abramowitz & Stegun 26.7.5), with an error of 0.003 at three degrees and less beyond.
    """
    if freedom < 1:
        return math.inf
    if freedom == 1:
        return math.tan(0.475 * math.pi)
    if freedom == 2:
        return 0.95 * math.sqrt(2.0 / (1.0 - 0.95**2))
    terms = (
        (Z**3 + Z) / 4,
        (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96,
        (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384,
        (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / 92160,
    )
    return Z + sum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))


def mean_of(values: Sequence[float]) -> Mean:
    """Return the mean of independent values with its Student's t confidence interval."""
    count = len(values)
    if count == 0:
        return Mean(math.nan, math.inf, 0)
    deviation = float(np.std(values, ddof=1)) if count > 1 else math.inf
    return Mean(float(np.mean(values)), t_quantile(count - 1) * deviation / math.sqrt(count), count)


def spread(values: Sequence[float]) -> list[float]:
    """Return the median, 95th percentile (one of the values) and maximum, or an empty list if there are no values."""
    if not values:
        return []
    return [float(np.median(values)), float(np.quantile(values, 0.95, method="closest_observation")), max(values)]
