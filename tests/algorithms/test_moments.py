"""Running moments: equal to a direct computation, however the samples come."""

from __future__ import annotations

import numpy as np
import pytest

from srl.algorithms.training.moments import Moments
from srl.algorithms.training.ranks import NotFiniteError, Ranks
from srl.base.tree import Array


def test_three_numbers_by_hand() -> None:
    moments = Moments(1)
    assert (moments.mean[0], moments.deviation[0]) == (0.0, 1.0)
    moments.fold(np.array([[1.0], [2.0]]), Ranks())
    moments.fold(np.array([[6.0]]), Ranks())
    # mean 3, squared deviations 4 + 1 + 9
    np.testing.assert_allclose(moments.state[:, 0], [3.0, 3.0, 14.0], rtol=1e-15)
    assert moments.deviation[0] == pytest.approx((14 / 3) ** 0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
def test_any_batches_give_the_moments_of_all_samples(dtype: type, offset: float) -> None:
    rng = np.random.default_rng(0)
    samples: Array = (rng.standard_normal((30_000, 5)) * [1e-2, 1.0, 10.0, 1e3, 0.0] + offset).astype(dtype)
    moments = Moments(5)
    for part in np.split(samples, [1, 1, 500, 17_000]):  # one is empty, one longer than a chunk
        moments.fold(part, Ranks())
    exact = samples.astype(np.longdouble)
    np.testing.assert_allclose(moments.state[0], 30_000.0)
    np.testing.assert_allclose(moments.mean, exact.mean(0).astype(float), rtol=1e-12, atol=1e-12)
    deviation = np.sqrt(exact.var(0) + 1e-8).astype(float)
    np.testing.assert_allclose(moments.deviation, deviation, rtol=1e-7)


def test_a_window_drops_old_samples() -> None:
    moments = Moments(1, window=1000)
    moments.fold(np.full((5000, 1), 7.0), Ranks())
    for _ in range(20):
        moments.fold(np.array([[-1.0], [1.0]] * 500), Ranks())
    assert moments.state[0, 0] == 1000
    assert abs(moments.mean[0]) < 1e-4
    assert moments.deviation[0] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_number_that_is_not_finite_changes_nothing(what: float, is_first: bool) -> None:
    moments = Moments(2)
    if not is_first:
        moments.fold(np.array([[1.0, 2.0], [3.0, 5.0]]), Ranks())
    before = moments.state.copy()
    with np.errstate(all="ignore"), pytest.raises(NotFiniteError):
        moments.fold(np.array([[1.0, what]]), Ranks())
    np.testing.assert_array_equal(moments.state, before)
