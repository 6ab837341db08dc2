"""Line charts drawn with characters."""

import numpy as np

from srl.terminal.drawing import Line, chart


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right() -> None:
    x = np.array([0.0, 1e6])
    text = chart([Line("ppo", x, np.array([0.0, 500.0]))], 40, 10, "steps")
    rows = text.plain.splitlines()
    assert len(rows) == 10
    assert max(map(len, rows)) <= 40
    assert rows[0].startswith("500.0 ┤")
    assert rows[0].rstrip()[-1] not in "┤ "
    assert rows[6].startswith(" 0.00 ┤⣀") or rows[6].startswith(" 0.00 ┤⡠")
    assert rows[-2].split() == ["0", "1M", "steps"]
    assert rows[-1].split() == ["━━", "ppo", "500.0"]


def test_each_line_has_its_own_color_and_gaps_are_skipped() -> None:
    x = np.array([0.0, 1.0, 2.0])
    text = chart([Line("a", x, np.array([1.0, np.nan, 1.0])), Line("b", x[:1], np.array([2.0]))], 40, 10, "s")
    assert {"blue", "red"} <= {str(span.style) for span in text.spans}
    assert chart([Line("a", x[:0], x[:0])], 40, 10, "s").plain == "no values to draw"
