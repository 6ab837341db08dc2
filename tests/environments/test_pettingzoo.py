import importlib.abc
import importlib.machinery
import importlib.util
import sys

import numpy as np
import pytest
from support.trees import leaf

from srl.api.lanes import Lanes, TimeStep
from srl.api.spaces import Box, Dict, Discrete
from srl.environments.failures import EnvironmentBroken
from srl.environments.pettingzoo.config import PettingZooConfig
from srl.environments.registry import lanes_config

pytest.importorskip("pettingzoo")

TEAM = "support.games:DyingTeam"
TURNS = "support.games:TurnGame"


def build(name: str, num_copies: int = 1, **kwargs) -> Lanes:
    return PettingZooConfig(name, kwargs).build(num_copies)


def step(lanes: Lanes, action: int = 0) -> tuple[TimeStep, ...]:
    return lanes.step(tuple(np.full(lanes.spec.num_copies, action) for _ in lanes.spec.teams))


def row(time_step: TimeStep, lane: int = 0) -> tuple:
    """Return (time, reward, marks), where marks are the initials of the flags that are set."""
    observation = leaf(time_step.observation, *(["observation"] if isinstance(time_step.observation, dict) else []))
    marks = {"a": time_step.acting, "f": time_step.first, "e": time_step.terminated, "u": time_step.truncated}
    letters = "".join(letter for letter, flags in marks.items() if flags[lane])
    return int(observation[lane, 2]), float(time_step.reward[lane]), letters


def rows(time_steps: tuple[TimeStep, ...]) -> list[tuple]:
    return [row(time_step) for time_step in time_steps]


def test_each_agent_is_a_team_and_each_copy_a_lane():
    spec = build(TEAM, num_copies=3).spec
    assert spec.environment == TEAM
    assert [(team.name, team.agents, team.aligned) for team in spec.teams] == [
        ("agent_0", ("agent_0",), True),
        ("agent_1", ("agent_1",), True),
    ]
    assert spec.num_lanes(0) == 3
    assert spec.teams[0].observation == Box((4,), "float32", -1.0, 1_000_000.0)
    assert spec.teams[0].action == Discrete(2)


def test_dead_agents_are_idle_until_the_end_of_the_episode():
    lanes = build(TEAM, deaths=(1, 3))
    assert rows(lanes.reset(0)) == [(0, 0, "af"), (0, 0, "af")]
    assert rows(step(lanes)) == [(1, 1, "e"), (1, 101, "a")]
    assert rows(step(lanes)) == [(1, 0, ""), (2, 102, "a")]
    assert rows(step(lanes)) == [(1, 0, ""), (3, 103, "e")]
    assert rows(step(lanes)) == [(0, 0, "af"), (0, 0, "af")]
    assert rows(step(lanes)) == [(1, 1, "e"), (1, 101, "a")]


def test_an_attribute_changes_in_every_copy():
    lanes = build(TEAM, 2, deaths=(1, 1))
    lanes.reset(0)
    lanes.set_option("truncate", True)
    assert [time_step.truncated.tolist() for time_step in step(lanes)] == [[True, True], [True, True]]
    with pytest.raises(AttributeError, match="trunctae"):
        lanes.set_option("trunctae", True)


def test_truncation_stays_truncation():
    lanes = build(TEAM, deaths=(1,), truncate=True)
    lanes.reset(0)
    assert rows(step(lanes)) == [(1, 1, "u")]


def test_copies_and_episodes_have_different_seeds_that_repeat():
    def seeds() -> np.ndarray:
        lanes = build(TEAM, num_copies=3, deaths=(1, 1))
        first = leaf(lanes.reset(7)[0].observation)[:, 0].copy()
        step(lanes)
        return np.concatenate([first, leaf(step(lanes)[0].observation)[:, 0]])

    assert len(set(seeds().tolist())) == 6
    assert np.array_equal(seeds(), seeds())


def test_rewards_are_delivered_at_the_next_turn():
    """A move gives reward 1 to the mover and 10 to the other. Agent 1 gets 10 before its first turn: a row later."""
    lanes = build(TURNS, length=3)
    assert not any(team.aligned for team in lanes.spec.teams)
    assert rows(lanes.reset(0)) == [(0, 0, "af"), (0, 0, "")]
    assert rows(step(lanes)) == [(0, 0, ""), (1, 0, "af")]
    assert rows(step(lanes)) == [(2, 11, "a"), (1, 0, "")]
    assert rows(step(lanes)) == [(3, 1, "e"), (3, 21, "e")]
    assert rows(step(lanes)) == [(0, 0, "af"), (1 + 2, 0, "")]


def test_a_dead_agent_in_a_turn_based_game_has_no_more_turns():
    lanes = build(TURNS, num_agents=3, length=6, deaths=(1, 0, 0))
    lanes.reset(0)
    assert rows(step(lanes)) == [(1, 1, "e"), (1, 0, "af"), (0, 0, "")]
    assert rows(step(lanes)) == [(1, 0, ""), (1, 0, ""), (2, 0, "af")]
    assert rows(step(lanes)) == [(1, 0, ""), (3, 10 + 1 + 10, "a"), (2, 0, "")]


def test_one_lane_of_each_copy_acts_in_a_turn_based_game():
    lanes = build(TURNS, num_copies=4, num_agents=3, length=7)
    time_steps = lanes.reset(0)
    for _ in range(30):
        acting = np.sum([time_step.acting for time_step in time_steps], axis=0)
        ended = np.sum([time_step.terminated | time_step.truncated for time_step in time_steps], axis=0)
        assert ((acting == 1) | (ended == 3)).all()
        time_steps = step(lanes)


def test_an_agent_that_never_moved_has_no_episode():
    lanes = build(TURNS, length=1)
    lanes.reset(0)
    assert rows(step(lanes)) == [(1, 1, "e"), (0, 0, "")]
    assert rows(step(lanes)) == [(0, 0, "af"), (0, 0, "")]


def test_masks_are_kept_as_observations():
    lanes = build(TURNS, length=4, mask=True)
    space = lanes.spec.teams[0].observation
    assert isinstance(space, Dict)
    assert sorted(space.items) == ["action_mask", "observation"]
    time_steps = lanes.reset(0)
    for _ in range(12):
        actions = tuple(
            leaf(time_step.observation, "action_mask").argmax(axis=1) for time_step in time_steps
        )  # [L, 2] -> [L]
        time_steps = lanes.step(actions)
        assert time_steps[0].failed is None


@pytest.mark.parametrize("name", [TEAM, TURNS])
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", "failed on purpose at step 2"),
        ("nan", "agent 'agent_0': observation contains NaN"),
        ("nan_reward", "agent 'agent_0': reward is nan"),
        ("shape", r"agent 'agent_0': observation has shape \(7,\)"),
    ],
)
def test_a_copy_that_fails_is_replaced_and_its_lanes_are_marked(name: str, fault: str, message: str):
    lanes = build(name, num_copies=2, fault=fault, fault_after=2)
    seeds = leaf(lanes.reset(3)[0].observation)[:, 0].copy()
    step(lanes)
    time_steps = step(lanes)
    assert all(time_step.failed is not None and time_step.failed.all() for time_step in time_steps)
    assert row(time_steps[0]) == (0, 0, "af")
    assert (leaf(time_steps[0].observation)[:, 0] != seeds).all()
    reports = time_steps[0].failures
    assert len(reports) == 2
    assert time_steps[1].failures == ()
    for copy, report in enumerate(reports):
        assert name in report
        assert "step 2" in report
        assert int(report.split("seed ")[1].split(",")[0]) % 1_000_000 == seeds[copy]
        with pytest.raises(RuntimeError, match=message):
            raise RuntimeError(report)
    assert step(lanes)[0].failed is None


def test_the_report_names_the_agent_whose_turn_it_was():
    lanes = build(TURNS, fault="raise", fault_after=2)
    lanes.reset(0)
    step(lanes)
    assert "Agent 'agent_1' was acting" in step(lanes)[0].failures[0]


@pytest.mark.parametrize("name", [TEAM, TURNS])
def test_a_failed_replacement_raises(name: str):
    with pytest.raises(EnvironmentBroken, match=r"replacement failed, too(.|\n)*failed on purpose in reset"):
        build(name, fault="raise_in_reset").reset(0)


def test_a_parallel_environment_can_be_made_turn_based():
    lanes = build(TEAM, turns=True)
    assert not any(team.aligned for team in lanes.spec.teams)
    assert rows(lanes.reset(0)) == [(0, 0, "af"), (0, 0, "")]


def test_a_missing_extra_names_the_command_that_installs_it():
    with pytest.raises(ImportError, match=r"needs nothing_like_this.*pip install 'pettingzoo\[fake\]'"):
        with_fake_family("import nothing_like_this")


def with_fake_family(source: str) -> None:
    """Create a family `pettingzoo.fake` with one module, `game_v0`, whose code is `source`."""

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, fullname, path, target=None):
            if fullname not in ("pettingzoo.fake", "pettingzoo.fake.game_v0"):
                return None
            return importlib.machinery.ModuleSpec(fullname, self, is_package=fullname.endswith("fake"))

        def exec_module(self, module):
            if module.__name__.endswith("game_v0"):
                exec(source, module.__dict__)

    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        build("pettingzoo:fake.game_v0")
    finally:
        sys.meta_path.remove(finder)
        sys.modules.pop("pettingzoo.fake", None)


def test_a_misspelled_name_is_refused_with_the_nearest_name():
    with pytest.raises(ImportError, match=r"no 'classic.rps_v9'; did you mean 'classic.rps_v2'"):
        build("pettingzoo:classic.rps_v9")
    with pytest.raises(ImportError, match=r"no 'rps_v2'; did you mean 'classic.rps_v2'"):
        build("pettingzoo:rps_v2")
    with pytest.raises(ImportError, match=r"no 'clasic.rps_v2'; did you mean 'classic'"):
        build("pettingzoo:clasic.rps_v2")


def test_lanes_are_found_by_name():
    lanes = lanes_config(f"pettingzoo:{TEAM}", deaths=[1, 2, 3]).build(2)
    assert len(lanes.spec.teams) == 3


def test_a_copy_that_always_fails_at_its_first_step_raises():
    lanes = build(TEAM, fault="raise", fault_after=1)
    lanes.reset(0)
    for _ in range(19):
        step(lanes)
    with pytest.raises(EnvironmentBroken, match="20 times in a row"):
        step(lanes)


def test_families_that_moved_are_found_or_name_their_package():
    pytest.importorskip("pettingzoo", minversion="1.26")
    if importlib.util.find_spec("mpe2") is None:
        with pytest.raises(ImportError, match=r"needs mpe2.*pip install mpe2"):
            build("pettingzoo:mpe.simple_spread_v3")
    else:
        lanes = build("pettingzoo:mpe.simple_spread_v3")
        assert [team.name for team in lanes.spec.teams] == ["agent_0", "agent_1", "agent_2"]
        lanes.close()


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="returned Tracer, expected a pettingzoo"):
        build("srl.testing.environments:Tracer")


@pytest.mark.filterwarnings("ignore:The old environment creation API")  # PettingZoo's tests use it themselves
def test_possible_agents_are_required():
    with pytest.raises(ValueError, match="no `possible_agents`"):
        build("pettingzoo.test.example_envs.generated_agents_parallel_v0:parallel_env")


def test_close_is_idempotent():
    lanes = build(TEAM)
    lanes.close()
    lanes.close()
