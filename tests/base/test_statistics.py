"""Confidence intervals, compared with printed tables."""

import math

import pytest

from srl.base.statistics import mean_of, t_quantile


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
