"""Numbers formatted for people."""

import math

from srl.terminal.formatting import count, duration, figure, percent, rate


def test_rates_keep_three_digits() -> None:
    found = [rate(x) for x in (0, 2.34, 42, 999.4, 999.6, 21_432, 210_345, 999_600, 1_250_000, math.nan)]
    assert found == ["0/s", "2.3/s", "42/s", "999/s", "1.00k/s", "21.4k/s", "210k/s", "1.00M/s", "1.25M/s", "-"]


def test_durations_grow_from_seconds_to_days() -> None:
    found = [duration(x) for x in (0, 12.34, 59.94, 59.96, 247, 7384, 86_400 * 3 + 4 * 3600, math.inf)]
    assert found == ["0.0 s", "12.3 s", "59.9 s", "1:00", "4:07", "2:03:04", "3 d 04:00", "-"]


def test_numbers_keep_their_significant_digits() -> None:
    found = [figure(x) for x in (None, math.nan, 0.0, -0.05, 9.99, 312.41, 12_345.6, 1.2e7, 0.0001)]
    assert found == ["-", "-", "0.00", "-0.05", "9.99", "312.4", "12,346", "1.2e+07", "1.0e-04"]


def test_100_percent_means_complete() -> None:
    assert [percent(x) for x in (0, 0.524, 0.29, 0.9999, 1)] == ["0 %", "52 %", "29 %", "99 %", "100 %"]
    assert count(524_288) == "524,288"
