"""Bars and curves, checked character by character."""

import math

from srl.terminal.drawing import bar, braille, resample, sparkline, split


def test_resampling_keeps_both_ends_and_skips_nan() -> None:
    assert resample([0, 10], 3) == [0, 5, 10]
    assert resample([0, 1, 2, 3, 4], 3) == [0, 2, 4]
    assert resample([math.nan, 7], 2) == [7, 7]
    assert resample([], 5) == []


def test_a_sparkline_goes_from_the_lowest_to_the_highest_value() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5], 3) == "▁▁▁"
    assert sparkline([], 3) == ""


def test_a_braille_curve_rises_dot_by_dot() -> None:
    assert braille([0, 1, 2, 3], 2, 1) == ["⡠⠊"]
    assert braille([0, 7], 1, 2) == ["⢸", "⡸"]
    assert braille([3, 3, 3], 3, 2) == ["   ", "⣀⣀⣀"]
    assert braille([], 3, 2) == ["   ", "   "]


def test_a_bar_fills_in_eighths() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(0.5, 1) == "▌"
    assert [bar(x, 2) for x in (-1, 2, math.nan)] == ["  ", "██", "  "]


def test_splitting_shares_loses_no_cell() -> None:
    assert split({"a": 0.5, "b": 0.5}, 3) == {"a": 2, "b": 1}
    assert split({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, 10) == {"a": 4, "b": 3, "c": 3}
    assert split({"a": 0.25}, 4) == {"a": 1}
    assert split({"a": 2.0, "b": 2.0}, 4) == {"a": 2, "b": 2}
    assert split({"a": math.nan, "b": -1.0}, 4) == {"a": 0, "b": 0}
