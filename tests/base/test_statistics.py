"""Confidence intervals, compared with printed tables."""

import math

import numpy as np
import pytest

from srl.base.statistics import Interval, interquartile_mean, mean_of, rate_of, stratified_bootstrap, t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (29, 2.045), (10**6, 1.960)]
)
def test_quantiles_match_the_tables(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=0.004)


def test_the_interval_of_a_mean_uses_students_t() -> None:
    mean = mean_of([1.0, 2.0, 3.0])  # deviation 1
    assert (mean.value, mean.count) == (2.0, 3)
    assert mean.interval == pytest.approx(4.303 / math.sqrt(3), abs=1e-3)


def test_the_interval_of_a_single_value_is_infinite() -> None:
    assert mean_of([5.0]).interval == math.inf
    assert math.isnan(mean_of([]).value)


@pytest.mark.parametrize(
    ("successes", "count", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (50, 50, 0.9286, 1.0)]
)
def test_the_interval_of_a_rate_is_wilsons(successes: int, count: int, low: float, high: float) -> None:
    rate = rate_of([1.0] * successes + [0.0] * (count - successes))
    assert (rate.value, rate.count) == (successes / count, count)
    assert (rate.low, rate.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end() -> None:
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -50.0])) == pytest.approx(3.5)
    assert interquartile_mean(np.array([1.0, 2.0, 9.0])) == pytest.approx(4.0), "a quarter of three is none"
    assert interquartile_mean(np.array([[1.0, 2.0, 3.0, 100.0], [0.0, 5.0, 7.0, 8.0]])).tolist() == [2.5, 6.0]


def test_the_bootstrap_resamples_within_each_stratum() -> None:
    """Each stratum is constant, so every resample has the same values; unstratified ones would not."""
    assert stratified_bootstrap([[1.0, 1.0], [5.0, 5.0, 5.0]]) == Interval(3.4, 3.4, 3.4)


def test_the_bootstrap_interval_is_that_of_the_percentiles() -> None:
    """The mean of two values from {0, 1} is 0, 0.5 or 1 with probabilities 1/4, 1/2, 1/4. The mean of ten thousand is
    within 0.01, two standard errors, of a half."""
    assert stratified_bootstrap([[0.0, 1.0]]) == Interval(0.5, 0.0, 1.0)
    wide = stratified_bootstrap([[0.0, 1.0] * 5000], resamples=200)
    assert wide.low == pytest.approx(0.49, abs=0.003)
    assert wide.high == pytest.approx(0.51, abs=0.003)


def test_a_single_value_has_no_bootstrap_interval() -> None:
    assert stratified_bootstrap([[2.0], [4.0]]) == Interval(3.0)
