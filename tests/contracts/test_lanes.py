"""The contract of lanes over all adapters."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import srl
from srl.api.lanes import Lanes, LanesConfig, LaneSpec, TeamSpec, TimeStep
from srl.api.spaces import Box, Discrete
from srl.base.state import NotResumable
from srl.base.tree import leaves
from srl.environments.adapters.wrappers import RepeatAction
from srl.environments.random_actions import some_actions
from srl.environments.registry import lanes_config
from srl.testing.contexts import World
from srl.testing.env_checks.lanes import check_lanes
from srl.testing.findings import report

TRACER, GAMES = "srl.testing.environments:Tracer", "pettingzoo:support.games"
HERE = str(Path(__file__))
ADAPTERS: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "gymnasium": (TRACER, {"length": 3}, None),
    "gymnasium truncated": (TRACER, {"length": 3, "truncate": True}, None),
    "gymnasium registered": ("Acrobot-v1", {}, None),
    "gymnasium continuous": ("Pendulum-v1", {}, None),
    "vector native": ("CartPole-v1", {}, None),
    "atari": ("ALE/Pong-v5", {}, "ale_py"),
    "mujoco": ("HalfCheetah-v5", {}, "mujoco"),
    "mujoco ending": ("Hopper-v5", {}, "mujoco"),
    "envpool": ("envpool:CartPole-v1", {}, "envpool"),
    "game": ("game:tic-tac-toe", {"openings": 0.5}, None),
    "game with joint seats": (f"{HERE}:joint_game", {}, None),
    "pettingzoo parallel": (f"{GAMES}:DyingTeam", {"deaths": (2, 4, 3)}, "pettingzoo"),
    "pettingzoo turns": (
        f"{GAMES}:TurnGame",
        {"num_agents": 3, "length": 9, "deaths": (0, 2, 0)},
        "pettingzoo",
    ),
    "pettingzoo mask": (f"{GAMES}:TurnGame", {"length": 4, "mask": True}, "pettingzoo"),
    "pettingzoo forced turns": (f"{GAMES}:DyingTeam", {"turns": True}, "pettingzoo"),
}


def joint_game(num_copies: int) -> Lanes:
    return lanes_config("game:connect-four", openings=0.5).with_states().build(num_copies)


@pytest.fixture(params=ADAPTERS)
def config(request) -> LanesConfig:
    name, kwargs, package = ADAPTERS[request.param]
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return lanes_config(name, **kwargs)


def record(lanes: Lanes, seed: int, steps: int = 25) -> list[np.ndarray]:
    """Everything that the acting lanes saw and earned under random actions."""
    rng = np.random.default_rng(0)
    time_steps = lanes.reset(seed)
    seen: list[np.ndarray] = []
    for _ in range(steps):
        for time_step in time_steps:
            seen += [leaf[time_step.acting] for _, leaf in leaves(time_step.observation)]
            seen += [time_step.reward.copy(), time_step.terminated | time_step.truncated, time_step.acting.copy()]
        time_steps = lanes.step(some_actions(lanes.spec, rng, time_steps))
    return seen


@pytest.mark.parametrize("num_copies", [1, 3])
def test_arrivals_keep_the_contract(config: LanesConfig, num_copies: int):
    findings = check_lanes(config.build(num_copies), steps=300 if num_copies == 3 else 60)
    assert findings == [], report(findings, str(config))


def test_a_config_builds_as_many_copies_as_asked(config: LanesConfig):
    lanes = config.build(3)
    assert isinstance(lanes, Lanes)
    assert lanes.spec.num_copies == 3
    assert len({team.name for team in lanes.spec.teams}) == len(lanes.spec.teams)
    lanes.close()


def test_runs_with_one_seed_are_equal(config: LanesConfig):
    runs = []
    for _ in range(2):
        lanes = config.build(2)
        runs.append(record(lanes, seed=5))
        lanes.close()
    assert all(np.array_equal(one, other) for one, other in zip(*runs, strict=True))


RESUMABLE: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "Pendulum-v1": {},
    "Acrobot-v1": {},
    "MountainCar-v0": {},
    "MountainCarContinuous-v0": {},
    "FrozenLake-v1": {},
    "CliffWalkingSlippery-v1": {},
    "Taxi-v4": {"is_rainy": True, "fickle_passenger": True},
    "Blackjack-v1": {},
    "HalfCheetah-v5": {},
    "Ant-v5": {},
    TRACER: {},
    f"{GAMES}:TurnGame": {"num_agents": 3, "length": 9, "deaths": (0, 2, 0)},
    f"{GAMES}:DyingTeam": {"deaths": (2, 4, 3)},
    f"{HERE}:single_cartpole": {},
    f"{HERE}:repeated_pendulum": {},
}


def single_cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1")


def repeated_pendulum() -> gymnasium.Env:
    return RepeatAction(gymnasium.make("Pendulum-v1", max_episode_steps=40), 3)


@pytest.mark.parametrize("name", RESUMABLE)
def test_restored_lanes_continue_exactly(name: str) -> None:
    if name.endswith("-v5"):
        pytest.importorskip("mujoco")
    if name.startswith("pettingzoo"):
        pytest.importorskip("pettingzoo")
    config = lanes_config(name, **RESUMABLE[name])
    rng = np.random.default_rng(0)

    one, other = config.build(3), config.build(3)
    time_steps = one.reset(4)
    for _ in range(33):
        time_steps = one.step(some_actions(one.spec, rng, time_steps))
    other.restore({key: array.copy() for key, array in one.state().items()})
    for step in range(250):
        chosen = some_actions(one.spec, rng, time_steps)
        time_steps = one.step(chosen)
        for left, right in zip(time_steps, other.step(chosen), strict=True):
            for mark in ("observation", "reward", "terminated", "truncated", "acting", "first"):
                pairs = zip(leaves(getattr(left, mark)), leaves(getattr(right, mark)), strict=True)
                assert all(np.array_equal(a, b) for (_, a), (_, b) in pairs), (step, mark)
    one.close()
    other.close()


class Unsaved(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 0.0, False, False, {}


class UnableToSave(Unsaved):
    def save_state(self) -> dict[str, Any]:
        return {"broken": 1 / 0}

    def restore_state(self, state: Any) -> None: ...


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (Unsaved, "Unsaved cannot be saved in the middle of an episode; it would need methods `save_state`"),
        (UnableToSave, "save_state of UnableToSave failed: ZeroDivisionError"),
    ],
)
def test_an_environment_that_cannot_be_saved_is_named(environment: type, reason: str) -> None:
    lanes = lanes_config(environment).build(2)
    lanes.reset(0)
    with pytest.raises(NotResumable, match=reason):
        lanes.state()
    lanes.close()


class MinimalLanes(Lanes):
    """Episodes of one step; action 1 earns 1. Only the abstract methods are implemented."""

    def __init__(self, num_copies: int) -> None:
        self.spec = LaneSpec("minimal", num_copies, (TeamSpec("agent", ("agent",), Box((1,)), Discrete(2)),))

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._ended = np.zeros(self.spec.num_copies, bool)
        return (self._time_step(np.zeros(self.spec.num_copies, np.float32), ~self._ended),)

    def step(self, actions) -> tuple[TimeStep, ...]:
        first = self._ended
        self._ended = ~first
        return (self._time_step(np.where(first, 0, actions[0]).astype(np.float32), first),)

    def _time_step(self, reward: np.ndarray, first: np.ndarray) -> TimeStep:
        observation, never = np.zeros((len(reward), 1), np.float32), np.zeros(len(reward), bool)
        return TimeStep(observation, reward, self._ended.copy(), never, ~self._ended, first)

    def close(self) -> None: ...


class DuckTypedLanes:
    spec, reset, step, close = None, MinimalLanes.reset, MinimalLanes.step, MinimalLanes.close


def minimal(num_copies: int) -> Lanes:
    return MinimalLanes(num_copies)


def duck_typed(num_copies: int) -> DuckTypedLanes:
    return DuckTypedLanes()


@dataclass(frozen=True)
class MinimalConfig(LanesConfig):
    name: str = "anything"  # a field of the base class's spelling would be taken for a default

    def build(self, num_copies: int) -> Lanes:
        return MinimalLanes(num_copies)


@pytest.mark.parametrize("scheduler", ["inline", "processes"])
def test_minimal_lanes_can_be_trained_and_evaluated(tmp_path: Path, scheduler: str) -> None:
    run = srl.train(minimal, steps=4000, root=tmp_path, scheduler=scheduler)
    assert srl.evaluate(run.path, episodes=4).returns == (1.0,) * 4


def test_minimal_lanes_cannot_be_recorded_or_resumed_and_say_so() -> None:
    lanes = MinimalConfig().build_rendered()
    with pytest.raises(ValueError, match="minimal cannot be recorded: MinimalLanes has no `render`"):
        lanes.render()
    with pytest.raises(NotResumable, match="MinimalLanes does not implement `state` and `restore`"):
        lanes.state()
    with pytest.raises(NotResumable, match="MinimalLanes"):
        lanes.restore({})


def test_a_minimal_config_has_defaults_for_everything_else() -> None:
    config, world = MinimalConfig(), World()
    spec = config.build(1).spec
    bound = config.bind(world.context("actors", 0))
    world.close()
    assert config.environment_name() == "MinimalConfig"
    for same in (config.with_mask_key("legal"), config.with_global_state(), config.with_spec(spec), bound):
        assert same is config


def test_duck_typed_lanes_are_refused_with_the_class_to_derive_from() -> None:
    with pytest.raises(TypeError, match=r"returned DuckTypedLanes; derive that class from srl\.api\.lanes\.Lanes"):
        lanes_config(duck_typed).build(1)
    (finding,) = srl.testing.check_environment(duck_typed)
    assert finding.fix == "derive your class from srl.api.lanes.Lanes"
