import dataclasses
from typing import Any

import numpy as np
import pytest

from srl.environments.failures import EnvironmentBroken
from srl.environments.hide_and_seek.options import GameOptions
from srl.environments.hide_and_seek.physics.layout import BOX_HALF_SIZES, CUBE, _Builder, draw_layout
from srl.environments.hide_and_seek.physics.random_draws import RandomDraws
from srl.environments.hide_and_seek.physics.walls import Wall, draw_walls
from srl.environments.hide_and_seek.variants import VARIANTS, game_options

NUM = 2000


def worlds(variant, num=NUM, **options):
    draws = RandomDraws(np.random.default_rng(0))
    chosen = dataclasses.replace(VARIANTS[variant], **options)
    return [draw_layout(chosen, draws) for _ in range(num)]


@pytest.fixture(scope="module")
def quadrants():
    return worlds("quadrant")


@pytest.fixture(scope="module")
def fulls():
    return worlds("full")


def footprints(layout):
    """Return x0, y0, x1, y1 of all agents and objects on the floor: [objects, 4]."""
    sizes = [
        np.full((len(layout.agents), 2), 0.3),
        2 * BOX_HALF_SIZES[layout.box_kinds, :2],
        np.full((len(layout.ramps), 2), 0.5),
    ]
    low = np.concatenate((layout.agents, layout.boxes, layout.ramps))
    return np.concatenate((low, low + np.concatenate(sizes)), axis=1)


def overlaps(one, other):
    gap = 1e-9
    return (
        (one[:, None, 0] < other[None, :, 2] - gap)
        & (one[:, None, 2] > other[None, :, 0] + gap)
        & (one[:, None, 1] < other[None, :, 3] - gap)
        & (one[:, None, 3] > other[None, :, 1] + gap)
    )


@pytest.mark.parametrize("which", ["quadrants", "fulls"])
def test_entities_do_not_overlap(which, request):
    for layout in request.getfixturevalue(which):
        things = footprints(layout)
        walls = layout.walls[:, :4] @ np.array([[1, 0, 1, 0], [0, 1, 0, 1], [-1, 0, 1, 0], [0, -1, 0, 1]])
        assert not overlaps(things, walls).any()
        assert np.array_equal(overlaps(things, things), np.eye(len(things), dtype=bool))
        assert (things[:, :2] >= 0.2 - 1e-9).all()
        assert (things[:, 2:] <= 6.0).all()


def test_quadrants_have_the_specified_walls_and_doors(quadrants):
    num_inner = np.array([len(layout.walls) - 4 for layout in quadrants])
    vertical, horizontal = np.zeros(NUM, bool), np.zeros(NUM, bool)
    gaps = []
    for index, layout in enumerate(quadrants):
        inner = layout.walls[4:]
        up, level = inner[np.isclose(inner[:, 0], 3.1)], inner[np.isclose(inner[:, 1], 3.1)]
        assert len(up) + len(level) == len(inner)
        assert (inner[:, 4] == 0.25).all()
        assert (layout.walls[:4, 4] == 2.0).all()
        # A wall without a door spans 15 or 14 cells less its own thickness.
        vertical[index] = not np.isclose(up[:, 3].sum() * 2, 2.9)
        horizontal[index] = not np.isclose(level[:, 2].sum() * 2, 2.7)
        if len(up) == 2:
            low, high = up[np.argsort(up[:, 1])]
            gaps.append(high[1] - high[3] - low[1] - low[3])
    np.testing.assert_allclose(gaps, 0.7)
    assert set(num_inner) <= {2, 3, 4}
    assert (vertical & horizontal).mean() == pytest.approx(0.5, abs=0.04)
    assert (vertical & ~horizontal).mean() == pytest.approx(0.25, abs=0.04)
    assert (vertical | horizontal).all()


def test_an_outer_wall_is_the_box_that_the_original_compiles(quadrants):
    np.testing.assert_allclose(quadrants[0].walls[0], (0.1, 3.0, 0.05, 2.85, 2.0))


def test_door_offsets_of_the_quadrant_are_uniform():
    draws = RandomDraws(np.random.default_rng(1))
    options = dataclasses.replace(VARIANTS["quadrant"], door_dropout=0.0)
    first = [draw_walls(options, draws).inner for _ in range(NUM)]
    # The part before a vertical wall's door ends at the cell before it; a door at offset 1 leaves no such part.
    ends = [next((w.high for w in walls if w.vertical and w.low == 0), 0) + 1 for walls in first]
    counts = np.bincount(ends, minlength=14)[1:]
    assert len(counts) == 13
    assert counts.min() > 0.6 * NUM / 13
    assert counts.max() < 1.4 * NUM / 13


def test_agents_of_the_quadrant_have_the_specified_starts(quadrants):
    def in_quadrant(points):
        return (points[..., 0] >= 3.0) & (points[..., 1] < 3.0)

    hiders, seekers = (np.array([layout.agents[part] for layout in quadrants]) for part in (slice(0, 2), slice(2, 4)))
    boxes = np.array([layout.boxes for layout in quadrants])
    assert in_quadrant(boxes).all()
    assert not in_quadrant(seekers).any()
    assert in_quadrant(hiders).mean() == pytest.approx(0.25, abs=0.05)
    blocks = [(seekers[..., 0] < 3) & (seekers[..., 1] < 3), (seekers[..., 0] < 3) & (seekers[..., 1] >= 3)]
    for block in blocks:
        assert block.mean() == pytest.approx(1 / 3, abs=0.05)
    only = worlds("quadrant", 200, hiders_start="quadrant")
    assert in_quadrant(np.array([layout.agents[:2] for layout in only])).all()


def test_boxes_of_the_full_game_are_three_to_nine_of_which_three_or_more_are_long(fulls):
    boxes = np.array([len(layout.boxes) for layout in fulls])
    long = np.array([(layout.box_kinds != CUBE).sum() for layout in fulls])
    # Crowded worlds are rebuilt more often, counts and all, so that the larger ones are a little rarer.
    assert set(boxes) == set(range(3, 10))
    assert np.bincount(boxes)[3:].min() > 0.5 * NUM / 7
    assert (long >= 3).all()
    assert (long <= boxes).all()
    assert all((np.diff(layout.box_kinds) >= 0).all() for layout in fulls)
    assert {len(layout.ramps) for layout in fulls} == {2}


def test_teams_of_the_full_game_start_together(fulls):
    for team in (slice(0, 2), slice(2, 4)):
        apart = np.array([np.abs(np.diff(layout.agents[team], axis=0)).max() for layout in fulls])
        assert apart.max() <= 0.6 + 0.1 + 1e-9  # three cells, and the shift within the cells


def test_half_of_the_full_worlds_are_walled_in_and_rooms_are_one_to_four(fulls):
    outer = np.array([layout.num_outer for layout in fulls])
    assert set(outer) == {0, 4}
    assert (outer == 4).mean() == pytest.approx(0.5, abs=0.06)
    draws, counts = RandomDraws(np.random.default_rng(2)), []
    options = dataclasses.replace(VARIANTS["full"], door_size=0)
    for _ in range(NUM):
        counts.append(len(draw_walls(options, draws).inner))
    np.testing.assert_allclose(np.bincount(counts) / NUM, 0.25, atol=0.05)


def test_random_walls_leave_rooms_of_more_than_six_cells_and_never_cross():
    draws = RandomDraws(np.random.default_rng(3))
    options = dataclasses.replace(VARIANTS["full"], door_size=0, random_rooms=False)
    for _ in range(300):
        walls = draw_walls(options, draws).inner
        assert len(walls) == 3
        for one in walls:
            assert not any(one.crosses(other) for other in walls)
            assert 6 < one.line < 23
            assert one.length > 6


def test_every_inner_wall_has_one_door_of_seventy_centimeters_between_its_junctions():
    draws = RandomDraws(np.random.default_rng(4))
    options = dataclasses.replace(VARIANTS["full"], num_rooms=2, random_rooms=False)
    for _ in range(200):
        parts = draw_walls(options, draws).inner
        assert 1 <= len(parts) <= 2
        cells = sum(part.length + 1 for part in parts)
        assert cells in (28, 27)  # 30 less a door of 2; a part of a single cell is dropped


def test_a_wall_records_the_positions_at_which_others_meet_it():
    wall = Wall(True, 10, 0, 29)
    wall.meet(Wall(False, 12, 10, 29))
    wall.meet(Wall(False, 20, 0, 10))
    wall.meet(Wall(False, 25, 11, 29))
    assert sorted(wall.above) == [0, 12, 29]
    assert sorted(wall.below) == [0, 20, 29]


def test_harder_maps_are_larger_with_the_same_cells():
    for variant, side in (("large", 9.0), ("larger", 12.0)):
        layouts = worlds(variant, 60)
        assert VARIANTS[variant].floor == pytest.approx(side)
        assert max(layout.agents.max() for layout in layouts) > side - 1.5
        assert all(np.isclose(layout.walls[:, 2:4].min(), 0.05) for layout in layouts if len(layout.walls))


def test_transfer_tasks_have_what_they_need():
    for layout in worlds("lock-and-return", 40):
        assert len(layout.boxes) == len(layout.agents) == 1
        assert len(layout.walls) - layout.num_outer >= 5
    for layout in worlds("sequential-lock", 40):
        assert (len(layout.boxes), len(layout.ramps), len(layout.walls)) == (4, 3, 6)
    for layout in worlds("blueprint", 40):
        assert len(layout.boxes) == 8
        assert 1 <= len(layout.sites) <= 4
        assert (np.abs(layout.sites - 3) < 2.6).all()
    for layout in worlds("shelter", 40):
        assert sorted(layout.box_kinds)[-5:] == [CUBE] * 5
        assert 0.75 <= layout.cylinder[2] <= 1.0


def test_the_three_rooms_have_a_ramp_each():
    for layout in worlds("sequential-lock", 60):
        across = layout.walls[4]
        axis = 0 if across[2] < 0.06 else 1
        sides = layout.ramps[:, axis] > across[axis]
        assert 1 <= sides.sum() <= 2


@pytest.mark.parametrize("scenario", ["empty", "half", "var_quadrant", "var_tri"])
def test_the_other_scenarios_can_be_played_too(scenario):
    start = "outside" if scenario == "var_quadrant" else "together"
    for layout in worlds("full", 60, scenario=scenario, num_boxes=3, num_elongated=1, seekers_start=start):
        assert layout.num_outer == 4
        inner = layout.walls[4:]
        assert len(inner) <= {"empty": 0, "half": 2}.get(scenario, 4)
        if scenario == "var_quadrant":
            corner = (inner[:, 0].min(), inner[:, 1].max())  # the walls' lines
            assert (layout.boxes[:, 0] > corner[0] - 0.11).all()
            assert (layout.boxes[:, 1] < corner[1]).all()


def test_food_is_clustered_in_the_middle():
    for layout in worlds("food", 60):
        assert len(layout.food) == 4
        assert np.abs(layout.food[0] - 3).max() < 0.9
        assert np.ptp(layout.food, axis=0).max() < 1.0


def test_food_may_be_clustered_anywhere():
    first = np.array([layout.food[0] for layout in worlds("food", 120, food_centered=False)])
    assert first.min() < 1.2
    assert first.max() > 4.8
    assert all(np.ptp(layout.food, axis=0).max() < 1.0 for layout in worlds("food", 20, food_centered=False))


def test_objects_are_placed_in_the_order_of_the_original(monkeypatch):
    placed, place = [], _Builder._place

    def watched(self, size, chooser, name):
        corner = place(self, size, chooser, name)
        placed.append(name)
        return corner

    monkeypatch.setattr(_Builder, "_place", watched)
    worlds("shelter", 1, num_ramps=1)
    world = placed[len(placed) - placed[::-1].index("hider") - 1 :]  # the last that was tried
    assert world == ["hider", *["box"] * 8, "ramp", "cylinder"]
    placed.clear()
    worlds("food", 1, num_boxes=3)
    world = placed[len(placed) - placed[::-1].index("hider") - 2 :]
    assert world == ["hider", "hider", "seeker", "seeker", *["box"] * 3, "ramp", "ramp", *["food"] * 4]


def test_an_impossible_layout_says_what_does_not_fit():
    options = game_options("quadrant", {"num_boxes": 40})
    with pytest.raises(EnvironmentBroken, match=r"no free cells for a box.*30 x 30 cells.*larger `scale`"):
        draw_layout(options, RandomDraws(np.random.default_rng(0)))
    crowded = game_options("full", {"num_rooms": 40, "random_rooms": False})
    with pytest.raises(EnvironmentBroken, match="no place for 39 inner walls"):
        draw_layout(crowded, RandomDraws(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scenario": "quadrat"}, "scenario 'quadrat' is not known; did you mean 'quadrant'"),
        ({"num_boxes": (5, 3)}, "num_boxes must be a number of at least 0 or a pair"),
        ({"num_hiders": 0, "num_seekers": 0}, "a game needs an agent"),
        ({"preparation": 1.5}, "preparation must be between 0 and 1"),
        ({"max_others": 1}, "max_others must be at least 3"),
        ({"bounds": (1, 1, 0, 0)}, "bounds must be x0, y0, x1, y1"),
        ({"scale": 0.1}, "makes a floor of 3 cells"),
        ({"task": "shelter"}, "a task for one hider"),
        ({"scale": "big"}, "scale must be a positive number, not 'big'"),
        ({"num_hiders": "two"}, "num_hiders must be a number of at least 0 or a pair"),
        ({"horizon": 0}, "horizon must be an integer of at least 1"),
        ({"horizon": True}, "horizon must be an integer of at least 1, not True"),
        ({"max_others": "a"}, "max_others must be an integer of at least 0, not 'a'"),
        ({"bounds": 5}, "bounds must be x0, y0, x1, y1 .* or None, not 5"),
        ({"bounds": (0, 0, "6", 6)}, "bounds must be x0, y0, x1, y1"),
        ({"sleep": "no"}, "sleep must be true or false, not 'no'"),
        ({"lock_ramps": "false"}, "lock_ramps must be true or false, not 'false'"),
        ({"eat_when_caught": 0}, "eat_when_caught must be true or false, not 0"),
        ({"food_respawn": -3}, "food_respawn must be an integer of at least 0, not -3"),
        ({"food_reward": "much"}, "food_reward must be a number, not 'much'"),
        ({"num_sites": "x"}, "num_sites must be a number of at least 1 or a pair"),
        ({"num_boxes": (1.5, 2)}, "num_boxes must be a number of at least 0 or a pair"),
        ({"scenario": 3}, "scenario 3 is not known"),
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(changes, message):
    with pytest.raises(ValueError, match=message):
        GameOptions(**changes)


@pytest.mark.parametrize("option", [field.name for field in dataclasses.fields(GameOptions)])
def test_every_option_checks_its_value(option):
    wrong: dict[str, Any] = {option: {"what": "is this"}}
    with pytest.raises(ValueError, match=f"^{option} "):
        GameOptions(**wrong)


def test_counts_may_be_lists():
    from_json: Any = [1, 3]
    assert GameOptions(num_hiders=from_json).num_hiders == (1, 3)
