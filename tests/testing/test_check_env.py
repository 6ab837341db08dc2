import signal
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from srl.cli.main import main
from srl.testing.env_checks.environment import Finding, check_environment, has_errors, report


class Walk(gymnasium.Env):
    """A correct environment; each one below adds a mistake."""

    observation_space = spaces.Box(-100, 100, (2,), np.float32)
    length = 6

    def __init__(self, render_mode=None):
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.position = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.position.copy(), {}

    def step(self, action):
        self.t += 1
        self.position = self.position + np.float32(0.1) * action
        return self.position.copy(), float(self.t), self.t >= self.length, False, {}


class Float64(Walk):
    def step(self, action):
        observation, *rest = super().step(action)
        return observation.astype(np.float64), *rest


class WrongShape(Walk):
    def step(self, action):
        _, *rest = super().step(action)
        return np.zeros(3, np.float32), *rest


class ListObservation(Walk):
    def step(self, action):
        observation, *rest = super().step(action)
        return observation.tolist(), *rest


class Outside(Walk):
    observation_space = spaces.Box(-1e-3, 1e-3, (2,), np.float32)


class OutsideDiscrete(Walk):
    observation_space = spaces.Discrete(3)

    def reset(self, **kwargs):
        return 0, super().reset(**kwargs)[1]

    def step(self, action):
        return 3, *super().step(action)[1:]


class NanObservation(Walk):
    def step(self, action):
        _, *rest = super().step(action)
        return np.full(2, np.nan, np.float32), *rest


class InfinityInReset(Walk):
    def reset(self, **kwargs):
        super().reset(**kwargs)
        return np.full(2, np.inf, np.float32), {}


class NanReward(Walk):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float("nan"), *rest


class ArrayReward(Walk):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.array([reward]), *rest


class NoReward(Walk):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, None, *rest


class BareReset(Walk):
    def reset(self, **kwargs):
        return super().reset(**kwargs)[0]


class FourValues(Walk):
    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class IntegerEnd(Walk):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class Overwriting(Walk):
    """The classic `self.state += ...; return self.state`."""

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return self.position, {}

    def step(self, action):
        self.t += 1
        self.position += np.float32(0.1) * action
        return self.position, 0.0, self.t >= self.length, False, {}


class ActionChanging(Walk):
    def step(self, action):
        np.multiply(action, 0.5, out=action)
        return super().step(action)


class Endless(Walk):
    length = 10**9

    def step(self, action):
        observation, *rest = super().step(action)
        self.position = np.clip(self.position, -1, 1)
        return observation, *rest


class StaysDone(Walk):
    t = 0

    def reset(self, **kwargs):
        before = self.t
        result = super().reset(**kwargs)
        self.t = before
        return result


class Unseeded(Walk):
    def reset(self, *, seed=None, options=None):
        result = super().reset()
        self.t = 0
        return result


class SeedIgnored(Walk):
    def __init__(self):
        super().__init__()
        self.own_generator = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.own_generator = np.random.default_rng(0)
        self.t = 0
        self.position = self.own_generator.uniform(-1, 1, 2).astype(np.float32)
        return self.position.copy(), {}


class Remembering(Walk):
    offset = 0.0

    def step(self, action):
        self.offset += 0.01
        observation, reward, *rest = super().step(action)
        return observation, reward + self.offset, *rest


class NoSeed(Walk):
    def reset(self):  # type: ignore[override]
        return super().reset()


class Refusing(Walk):
    def step(self, action):
        raise ValueError("action must be 1 or 2")


class Unbounded(Walk):
    def __init__(self):
        super().__init__()
        self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class DoubleSpace(Walk):
    observation_space = spaces.Box(-100, 100, (2,), np.float64)

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0].astype(np.float64), {}

    def step(self, action):
        observation, *rest = super().step(action)
        return observation.astype(np.float64), *rest


class NoSpace(Walk):
    observation_space = None


class UnsupportedSpace(Walk):
    observation_space = spaces.Text(4)


class MissingPart(Walk):
    observation_space = spaces.Dict({"left": Walk.observation_space, "right": Walk.observation_space})

    def reset(self, **kwargs):
        return {"left": super().reset(**kwargs)[0]}, {}


class BadRender(Walk):
    def __init__(self):
        super().__init__(render_mode="rgb_array")

    def render(self):
        raise RuntimeError("no display")


class BadClose(Walk):
    def close(self):
        raise RuntimeError("closed twice")


class Hanging(Walk):
    def step(self, action):
        while True:
            try:
                signal.pause()
            except Exception:  # what a careless environment does
                continue


class Slow(Walk):
    SIMULATED_SECONDS = 0.03

    def step(self, action):
        time.sleep(self.SIMULATED_SECONDS)
        return super().step(action)


class CannotBeMade(Walk):
    def __init__(self):
        raise OSError("license expired")


class NotAnEnvironment:
    pass


@pytest.mark.parametrize(
    ("environment", "severity", "expected", "found"),
    [
        (Float64, "error", "observation to have dtype float32", "dtype float64"),
        (WrongShape, "error", "observation to have shape (2,)", "shape (3,)"),
        (ListObservation, "error", "observation to be a numpy array", "list"),
        (Outside, "error", "observation to be within the bounds of its space", "bounds -0.001 to 0.001"),
        (OutsideDiscrete, "error", "to be in its space Discrete(3)", "3"),
        (NanObservation, "error", "observation to be finite", "nan"),
        (InfinityInReset, "error", "observation to be finite", "inf"),
        (NanReward, "error", "reward to be finite", "nan"),
        (ArrayReward, "error", "reward to be a number", "ndarray: [1.]"),
        (NoReward, "error", "reward to be a number", "NoneType"),
        (BareReset, "error", "reset to return (observation, info)", "ndarray"),
        (
            FourValues,
            "error",
            "step to return (observation, reward, terminated, truncated, info)",
            "a tuple of 4 values",
        ),
        (IntegerEnd, "error", "`terminated` to be a bool", "int: 0"),
        (Overwriting, "error", "an observation to stay unchanged", "changed it"),
        (ActionChanging, "error", "step to leave the action unchanged", "changed the caller's array"),
        (Endless, "warning", "episodes to end", "no end in 300 steps"),
        (StaysDone, "error", "reset to start a new episode", "ended at their first step"),
        (Unseeded, "warning", "the same seed to give the same episode", "two instances with the same seed differ"),
        (SeedIgnored, "warning", "different seeds to give different episodes", "the seed is ignored"),
        (Remembering, "warning", "the same seed to give the same episode", "an instance that was used before"),
        (NoSeed, "error", "reset(seed=...) to succeed", "unexpected keyword argument 'seed'"),
        (Refusing, "error", "step(action_space.sample())", "action must be 1 or 2"),
        (Unbounded, "warning", "the action space to have finite bounds", "Box(-inf, inf"),
        (DoubleSpace, "warning", "observations to have dtype float32", "float64"),
        (NoSpace, "error", "observation_space to be a Gymnasium space", "None"),
        (UnsupportedSpace, "error", "a supported observation space", "Text"),
        (MissingPart, "error", "observation to have the keys ['left', 'right']", "['left']"),
        (BadRender, "error", "render to succeed", "no display"),
        (BadClose, "error", "close to succeed", "closed twice"),
        (CannotBeMade, "error", "making the environment", "license expired"),
        (NotAnEnvironment, "error", "a gymnasium.Env, a VectorEnv", "NotAnEnvironment"),
    ],
)
def test_a_mistake_is_the_only_finding(environment, severity: str, expected: str, found: str):
    findings = check_environment(environment, steps=300)
    assert [finding.severity for finding in findings] == [severity], report(findings, environment.__name__)
    assert expected in findings[0].expected
    assert found in findings[0].found
    assert findings[0].fix


def test_an_environment_that_is_stuck_is_found():
    (finding,) = check_environment(Hanging, timeout=1.0)
    assert finding.severity == "error"
    assert "within 1 s" in finding.expected
    assert f"stuck at {__file__}" in finding.found


def test_the_timer_of_the_caller_continues():
    """pytest-timeout uses the same signal; without its timer, the rest of the suite would have no time limit."""
    previous = signal.setitimer(signal.ITIMER_REAL, 50.0)
    handler = signal.getsignal(signal.SIGALRM)
    check_environment(Walk, steps=10)
    remaining, _ = signal.setitimer(signal.ITIMER_REAL, *previous)
    assert 40 < remaining <= 50
    assert signal.getsignal(signal.SIGALRM) is handler


def test_mistakes_are_also_found_outside_of_the_main_thread():
    found: list[Finding] = []
    thread = threading.Thread(target=lambda: found.extend(check_environment(NanReward)))
    thread.start()
    thread.join()
    assert [finding.severity for finding in found] == ["error"]


def test_a_slow_environment_is_a_warning_with_its_speed():
    (finding,) = check_environment(Slow, steps=15)
    assert finding.severity == "warning"
    assert "steps/s" in finding.found


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "srl.testing.environments:Tracer"])
def test_correct_environments_have_no_findings(name: str):
    assert check_environment(name) == []


def test_a_correct_function_has_no_findings():
    assert check_environment(Walk) == []


class NewSpaceAtReset(Walk):
    def reset(self, **kwargs):
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)  # as highway-env does: its seed is lost
        return super().reset(**kwargs)


def test_random_actions_do_not_depend_on_the_seed_of_the_environments_own_space():
    assert check_environment(NewSpaceAtReset) == []


def test_the_options_that_an_id_is_registered_with_are_used():
    gymnasium.register("Walk-v0", entry_point=f"{__name__}:LongWalk", kwargs={"length": 5})
    try:
        assert check_environment("Walk-v0") == []
    finally:
        del gymnasium.registry["Walk-v0"]


class LongWalk(Walk):
    def __init__(self, length):
        super().__init__()
        self.length = length


def test_an_unknown_name_is_a_finding():
    (finding,) = check_environment("CartPol-v1")
    assert "CartPole-v1" in finding.found


def test_the_report_has_errors_first_and_counts():
    findings = [Finding("warning", "w", "x", "y"), Finding("error", "a", "b", "c")]
    assert report(findings, "MyEnv") == (
        "MyEnv: 1 error, 1 warning\n\n"
        "error: expected a\n  found: b\n  fix:   c\n\n"
        "warning: expected w\n  found: x\n  fix:   y"
    )
    assert has_errors(findings)
    assert not has_errors(findings[:1])
    assert report([], "MyEnv") == "MyEnv: no problems found"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("missing.py:Env", "correct the path, the name or the options"),
        ("Missing-v0", "correct the name, or install the package"),
    ],
)
def test_the_fix_for_a_name_that_is_not_found(name, fix, capsys):
    assert main(["check-env", name]) == 1
    assert fix in " ".join(capsys.readouterr().out.split())
