import numpy as np
import pytest

from srl.base.tree import leaves
from srl.environments.hide_and_seek.lanes import HideAndSeekConfig
from srl.environments.hide_and_seek.scripted_players import BusyPlayers, RandomPlayers
from srl.environments.hide_and_seek.variants import VARIANTS
from srl.testing.env_checks.lanes import check_lanes


def build(variant="quadrant", num=2, **options):
    return HideAndSeekConfig(variant, options).build(num)


def by_agent(actions):
    """Return actions [N, A, 5] in the form that lanes take."""
    return tuple(actions.transpose(1, 0, 2))


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_every_game_keeps_the_contract_of_lanes(variant):
    found = check_lanes(build(variant, horizon=12), steps=40)
    assert [str(finding) for finding in found] == []


def rollout(num, seed, steps=100, **options):
    """Return all observations and rewards of the first copy."""
    lanes = build("full", num, horizon=45, **options)
    time_steps = lanes.reset(seed)
    random = np.random.default_rng(1)
    actions = random.integers(0, (11, 11, 11, 2, 2), (steps, 4, 5))
    rows = []
    for action in actions:
        in_all_copies = np.repeat(action[None], num, axis=0)
        time_steps = lanes.step(by_agent(in_all_copies))
        for time_step in time_steps:
            rows += [leaf[0].copy() for _, leaf in leaves(time_step.observation)] + [time_step.reward[0].copy()]
    lanes.close()
    return rows


def test_the_same_seed_and_actions_give_the_same_rollout_however_many_copies_there_are():
    once, again, more = rollout(1, 7), rollout(1, 7), rollout(3, 7)
    for one, other, third in zip(once, again, more, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)
    assert any(not np.array_equal(a, b) for a, b in zip(once, rollout(1, 8), strict=True))


def test_an_episode_is_truncated_and_has_statistics():
    lanes = build("quadrant", 3, horizon=10)
    lanes.reset(0)
    players = RandomPlayers(lanes.game, 0)
    for step in range(1, 23):
        hider, _, _, seeker = lanes.step(by_agent(players.act()))
        assert hider.truncated.all() == (step in (10, 21))
        assert hider.first.all() == (step in (11, 22))
        assert not hider.terminated.any()
        assert (hider.acting == ~hider.truncated).all()
        if step in (10, 21):
            assert hider.facts["length"].tolist() == [10] * 3
            np.testing.assert_array_equal(hider.facts["return"], -seeker.facts["return"])
            assert set(np.abs(hider.facts["return"])) <= {0, 2, 4, 6}
            assert len(hider.facts["max_box_move_prep"]) == 3
        else:
            assert hider.facts == {}
    lanes.close()


def test_every_agent_has_its_own_lanes_hiders_first():
    lanes = build("quadrant", 3)
    assert [team.agents for team in lanes.spec.teams] == [("hider_0",), ("hider_1",), ("seeker_0",), ("seeker_1",)]
    q = lanes.game.worlds.q
    for agent, time_step in enumerate(lanes.reset(0)):
        np.testing.assert_allclose(time_step.observation["observation_self"][:, :2], q[:, agent, :2])
    lanes.close()


def test_team_sizes_may_be_drawn_for_each_episode():
    lanes = build("full", 16, num_hiders=(1, 3), num_seekers=2, horizon=4)
    assert [team.aligned for team in lanes.spec.teams] == [True, False, False, True, True]
    lanes.reset(0)
    players = RandomPlayers(lanes.game, 0)
    sizes = set()
    for _ in range(12):
        time_steps = lanes.step(by_agent(players.act()))
        here = lanes.game.worlds.present[:, :3]
        sizes |= set(here.sum(axis=1).tolist())
        for agent, time_step in enumerate(time_steps[:3]):
            assert not time_step.acting[~here[:, agent]].any()
            assert not time_step.reward[~here[:, agent]].any()
    assert sizes == {1, 2, 3}
    lanes.close()


def test_an_unstable_world_affects_only_its_lanes():
    lanes = build("quadrant", 3)
    lanes.reset(0)
    players = RandomPlayers(lanes.game, 0)
    lanes.step(by_agent(players.act()))
    lanes.game.worlds._scene(1).qvel[0] = 1e4
    time_steps = lanes.step(by_agent(players.act()))
    for time_step in time_steps:
        assert time_step.failed.tolist() == [False, True, False]
        assert time_step.first.tolist() == [False, True, False]
        assert not time_step.reward[time_step.failed].any()
    assert "hide-and-seek/quadrant, copy 1, seed" in time_steps[0].failures[0]
    assert [time_step.failures for time_step in time_steps[1:]] == [()] * 3
    assert lanes.step(by_agent(players.act()))[0].failed is None
    lanes.close()


def soak(variant, num, steps, players, **options):
    lanes = build(variant, num, **options)
    lanes.reset(11)
    bots = players(lanes.game, 11)
    worlds = lanes.game.worlds
    fastest, episodes, outside = 0.0, 0, 0
    for _ in range(steps):
        time_steps = lanes.step(by_agent(bots.act()))
        assert time_steps[0].failed is None
        fastest = max(fastest, float(np.abs(worlds.v[:, :, :3]).max()))
        episodes += int(time_steps[0].truncated.sum())
        walled = np.array([layout.num_outer > 0 for layout in worlds.layouts])
        center = worlds.q[:, :, :2] + worlds.half[:, :, :2]
        out = ((center < 0) | (center > lanes.game.options.floor)).any(axis=2) & worlds.present
        outside += int(out[walled].sum())
        assert (worlds.q[:, :, 2] > -0.1).all()
    lanes.close()
    return fastest, episodes, outside


@pytest.mark.parametrize("players", [BusyPlayers, RandomPlayers])
def test_nothing_flies_away_or_leaves_a_walled_floor(players):
    fastest, episodes, outside = soak("quadrant", 8, 82, players)
    assert episodes == 8
    assert 5 < fastest < 50
    assert outside == 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("variant", "options", "episodes"),
    [
        ("quadrant", {}, 60),
        ("full", {}, 60),
        ("full", {"num_boxes": 9, "num_hiders": 3, "num_seekers": 3}, 60),
        ("larger", {"num_hiders": 2, "num_seekers": 2, "horizon": 240}, 20),
    ],
)
def test_two_hundred_episodes_of_busy_play_are_stable(variant, options, episodes):
    horizon = options.get("horizon", VARIANTS[variant].horizon)
    fastest, finished, outside = soak(variant, 20, (horizon + 1) * episodes // 20, BusyPlayers, **options)
    assert finished == episodes
    assert fastest < 50
    assert outside == 0
