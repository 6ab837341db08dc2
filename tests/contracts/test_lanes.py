"""The contract of lanes over all adapters."""

import importlib.util

import numpy as np
import pytest

from srl.api.lanes import Lanes, LanesConfig
from srl.environments.registry import lanes_config
from srl.testing.env_checks.findings import report
from srl.testing.env_checks.lanes import check_lanes, sample

TESTING = "srl.testing.environments"
ADAPTERS = {
    "gymnasium": (f"{TESTING}:tracer", {"length": 3}, None),
    "gymnasium truncated": (f"{TESTING}:constant_reward", {"length": 3}, None),
    "gymnasium registered": ("Acrobot-v1", {}, None),
    "gymnasium continuous": ("Pendulum-v1", {}, None),
    "vector native": ("CartPole-v1", {}, None),
    "atari": ("ALE/Pong-v5", {}, "ale_py"),
    "mujoco": ("HalfCheetah-v5", {}, "mujoco"),
    "mujoco ending": ("Hopper-v5", {}, "mujoco"),
    "envpool": ("envpool:CartPole-v1", {}, "envpool"),
    "pettingzoo parallel": (f"pettingzoo:{TESTING}:dying_team", {"deaths": (2, 4, 3)}, "pettingzoo"),
    "pettingzoo turns": (
        f"pettingzoo:{TESTING}:turn_game",
        {"num_agents": 3, "length": 9, "deaths": (0, 2, 0)},
        "pettingzoo",
    ),
    "pettingzoo mask": (f"pettingzoo:{TESTING}:turn_game", {"length": 4, "mask": True}, "pettingzoo"),
    "pettingzoo forced turns": (f"pettingzoo:{TESTING}:dying_team", {"turns": True}, "pettingzoo"),
}


@pytest.fixture(params=ADAPTERS)
def config(request) -> LanesConfig:
    name, kwargs, package = ADAPTERS[request.param]
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return lanes_config(name, **kwargs)


def record(lanes: Lanes, seed: int, steps: int = 25) -> list[np.ndarray]:
    """Everything that the acting lanes saw and earned under random actions."""
    rng = np.random.default_rng(0)
    arrivals = lanes.reset(seed)
    seen = []
    for _ in range(steps):
        for arrival in arrivals:
            leaves = arrival.observation.values() if isinstance(arrival.observation, dict) else [arrival.observation]
            seen += [leaf[arrival.acting] for leaf in leaves]
            seen += [arrival.reward.copy(), arrival.terminated | arrival.truncated, arrival.acting.copy()]
        arrivals = lanes.step(
            tuple(
                sample(rng, team.action, lanes.spec.num_lanes(index), arrival.observation)
                for index, (team, arrival) in enumerate(zip(lanes.spec.teams, arrivals, strict=True))
            )
        )
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
