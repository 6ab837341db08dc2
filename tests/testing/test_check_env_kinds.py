import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from srl.testing.env_checks.environment import check_environment


class Batch(VectorEnv):
    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = (
            spaces.Box(-100, 100, (2,), np.float32),
            spaces.Discrete(2),
        )
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def reset(self, *, seed=None, options=None):
        self.t = 0
        self.rng = np.random.default_rng(seed)
        return self.rng.random((self.num_envs, 2), np.float32), {}

    def step(self, actions):
        n, self.t = self.num_envs, self.t + 1
        observations = self.rng.random((n, 2), np.float32)
        reward, ended = np.full(n, float(self.t % 5 > 0), np.float32), np.full(n, self.t % 5 == 4)
        return observations, reward, ended, np.zeros(n, bool), {}


class ScalarReward(Batch):
    def step(self, actions):
        observations, _, *rest = super().step(actions)
        return observations, 1.0, *rest


class OneRow(Batch):
    def step(self, actions):
        observations, *rest = super().step(actions)
        return observations[0], *rest


class NanRow(Batch):
    def step(self, actions):
        observations, *rest = super().step(actions)
        observations[1, 0] = np.nan
        return observations, *rest


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (Batch, None),
        (ScalarReward, "`reward` to be an array of shape (2,)"),
        (OneRow, "observation to have shape (2,)"),
        (NanRow, "observation to be finite"),
    ],
)
def test_vector_environments(environment, expected: str | None):
    findings = check_environment(environment, steps=50)
    assert [expected] * bool(expected) == [finding.expected for finding in findings if finding.severity == "error"]


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("pettingzoo:support.games:DyingTeam", {}),
        ("support.games:DyingTeam", {"deaths": (3, 1, 2), "truncate": True}),
        ("support.games:DyingTeam", {"deaths": (3, 1, 2)}),
        ("support.games:TurnGame", {"mask": True}),
        ("support.games:TurnGame", {"num_agents": 3, "length": 20, "deaths": (2, 0, 3)}),
    ],
)
def test_correct_pettingzoo_environments_have_no_findings(name: str, kwargs: dict):
    pytest.importorskip("pettingzoo")
    assert check_environment(name, kwargs, steps=200) == []


@pytest.mark.parametrize("game", ["DyingTeam", "TurnGame"])
@pytest.mark.parametrize(
    ("fault", "expected", "found"),
    [
        ("raise", "step(action_space.sample()) to succeed", "failed on purpose"),
        ("raise_in_reset", "reset(seed=...) to succeed", "failed on purpose in reset"),
        ("nan", "observation to be finite", "of agent_0"),
        ("nan_reward", "reward to be finite", "of agent_"),
        ("shape", "observation to have shape (4,)", "(7,) of agent_0"),
    ],
)
def test_mistakes_of_pettingzoo_environments_name_the_agent(game: str, fault: str, expected: str, found: str):
    pytest.importorskip("pettingzoo")
    (finding,) = check_environment(f"support.games:{game}", {"fault": fault, "fault_after": 2})
    assert finding.severity == "error"
    assert expected in finding.expected
    assert found in finding.found


def test_agents_that_leave_in_a_wrong_way_are_found():
    pytest.importorskip("pettingzoo")
    from support.games import DyingTeam, TurnGame

    class Lingering(DyingTeam):
        def step(self, actions):
            before = list(self.agents)
            self.agents = [agent for agent in before if agent in actions]
            result = super().step(actions)
            self.agents = before
            return result

    class Vanishing(DyingTeam):
        def step(self, actions):
            observations, rewards, terminations, *rest = super().step(actions)
            return observations, rewards, dict.fromkeys(terminations, False), *rest

    class Undying(TurnGame):
        def _was_dead_step(self, action):
            return

    class Nameless(DyingTeam):
        def __init__(self):
            super().__init__()
            self.possible_agents = []

    for environment, expected in (
        (Lingering, "agents that ended to leave `agents`"),
        (Vanishing, "agents to leave `agents` only when terminated or truncated"),
        (Undying, "step(None) to remove an agent that ended from `agents`"),
        (Nameless, "`possible_agents` to list all agents that may ever take part"),
    ):
        errors = [finding.expected for finding in check_environment(environment) if finding.severity == "error"]
        assert errors == [expected]
