"""Means, rates and other statistics with confidence intervals."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from srl.base.tree import Array

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


def finite(values: Array) -> Array:
    """Return the values that are finite."""
    known = np.isfinite(values)
    return values if np.logical_and.reduce(known) else values[known]


@dataclass(frozen=True)
class Rate:
    """The fraction of successes among trials, and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float
    count: int


def rate_of(outcomes: Sequence[float]) -> Rate:
    """Return the fraction of successes among independent outcomes, each 0 or 1, with its Wilson interval. Unlike the
    normal interval, it stays within 0 and 1 and has a width even if all outcomes are equal."""
    count = len(outcomes)
    if count == 0:
        return Rate(math.nan, 0.0, 1.0, 0)
    value = float(np.mean(outcomes))
    center = (value + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z / (1 + Z**2 / count) * math.sqrt(value * (1 - value) / count + Z**2 / (4 * count**2))
    return Rate(value, max(0.0, center - half), min(1.0, center + half), count)


@dataclass(frozen=True)
class Interval:
    """A statistic, and the ends of its 95 % bootstrap interval, which are None for a single value."""

    value: float
    low: float | None = None
    high: float | None = None


def mean(values: Array) -> Array:
    """Return the mean over the last axis."""
    return np.asarray(values.mean(axis=-1))


def interquartile_mean(values: Array) -> Array:
    """Return the mean of the middle half of the values along the last axis. A quarter of them, rounded down, is left
    out at either end (Agarwal et al., 2021, arXiv 2108.13264)."""
    cut = values.shape[-1] // 4
    return mean(np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut])


def stratified_bootstrap(
    strata: Sequence[Sequence[float]],
    statistic: Callable[[Array], Array] = mean,
    resamples: int = 5000,
    seed: int = 0,
) -> Interval:
    """Return a statistic of all values, and the interval of its values in 95 % of the resamples. A resample draws as
    many values as there are from each stratum, with replacement (for strata that are tasks: Agarwal et al., 2021)."""
    groups = [np.asarray(values, np.float64) for values in strata]
    value = float(statistic(np.concatenate(groups)))
    if all(len(group) < 2 for group in groups):
        return Interval(value)
    generator = np.random.default_rng(seed)
    drawn = [group[generator.integers(len(group), size=(resamples, len(group)))] for group in groups]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=1)), (0.025, 0.975))
    return Interval(value, float(low), float(high))


def spread(values: Sequence[float]) -> list[float]:
    """Return the median, 95th percentile (one of the values) and maximum, or an empty list if there are no values."""
    if not values:
        return []
    return [float(np.median(values)), float(np.quantile(values, 0.95, method="closest_observation")), max(values)]


LONGEST_WINDOW = 120.0
"""Seconds after which a count that does not increase has the speed zero."""


class Speed:
    """Increase per second of a count over the last `window` seconds, or over its last two increases if those took
    longer, so that a run whose steps take longer than the window has a speed."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._samples: deque[tuple[float, int]] = deque()  # time and count

    def add(self, now: float, count: int) -> float:
        samples = self._samples
        samples.append((now, count))
        while len(samples) > 2 and now - samples[0][0] > self._window:
            two_increases = len({each for _, each in islice(samples, 1, None)}) > 2
            if not two_increases and now - samples[0][0] <= LONGEST_WINDOW:
                break
            samples.popleft()
        then, before = samples[0]
        return (count - before) / (now - then) if now > then else 0.0
