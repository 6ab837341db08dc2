import signal
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from srl.testing.env_checks.environment import Finding, check_environment, has_errors, report


class Walk(gymnasium.Env):
    """Nothing is wrong with it; each environment below adds one mistake."""

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
    def reset(self):
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
    ("environment", "severity", "wanted", "found"),
    [
        (Float64, "error", "observation of dtype float32", "dtype float64"),
        (WrongShape, "error", "observation of shape (2,)", "shape (3,)"),
        (ListObservation, "error", "observation as a numpy array", "list"),
        (Outside, "error", "observation inside its space", "bounds -0.001 to 0.001"),
        (OutsideDiscrete, "error", "inside its space Discrete(3)", "3"),
        (NanObservation, "error", "observation without NaN or infinity", "nan"),
        (InfinityInReset, "error", "observation without NaN or infinity", "inf"),
        (NanReward, "error", "reward without NaN or infinity", "nan"),
        (ArrayReward, "error", "reward to be a number", "ndarray: [1.]"),
        (NoReward, "error", "reward to be a number", "NoneType"),
        (BareReset, "error", "reset to return (observation, info)", "ndarray"),
        (FourValues, "error", "step to return (observation, reward, terminated, truncated, info)", "a tuple of 4"),
        (IntegerEnd, "error", "`terminated` to be a bool", "int: 0"),
        (Overwriting, "error", "an observation to stay as it was", "overwrote it"),
        (ActionChanging, "error", "the action to stay as it was", "changed the caller's array"),
        (Endless, "warning", "episodes that end", "none in 300 steps"),
        (StaysDone, "error", "a reset to begin a new episode", "ended at their first step"),
        (Unseeded, "warning", "the same seed to give the same episode", "not deterministic"),
        (SeedIgnored, "warning", "different seeds to give different episodes", "the seed is ignored"),
        (Remembering, "warning", "the same seed to give the same episode", "a used instance"),
        (NoSeed, "error", "reset(seed=...) to return", "unexpected keyword argument 'seed'"),
        (Refusing, "error", "step with an action of action_space.sample()", "action must be 1 or 2"),
        (Unbounded, "warning", "finite bounds of the action space", "Box(-inf, inf"),
        (DoubleSpace, "warning", "observations of float32", "float64"),
        (NoSpace, "error", "a gymnasium space as observation_space", "None"),
        (UnsupportedSpace, "error", "a supported observation space", "Text"),
        (MissingPart, "error", "observation with the parts ['left', 'right']", "['left']"),
        (BadRender, "error", "render to return", "no display"),
        (BadClose, "error", "close to return", "closed twice"),
        (CannotBeMade, "error", "the function that makes the environment", "license expired"),
        (NotAnEnvironment, "error", "a gymnasium.Env, a VectorEnv", "NotAnEnvironment"),
    ],
)
def test_a_mistake_is_found_and_nothing_else(environment, severity: str, wanted: str, found: str):
    findings = check_environment(environment, steps=300)
    assert [finding.severity for finding in findings] == [severity], report(findings, environment.__name__)
    assert wanted in findings[0].wanted
    assert found in findings[0].found
    assert findings[0].advice


def test_an_environment_that_hangs_is_found():
    (finding,) = check_environment(Hanging, timeout=1.0)
    assert finding.severity == "error"
    assert "within 1 s" in finding.wanted
    assert f"hangs at {__file__}" in finding.found


def test_the_timer_of_the_caller_goes_on():
    """pytest-timeout uses the same signal; without it the rest of the suite would run unguarded."""
    previous = signal.setitimer(signal.ITIMER_REAL, 50.0)
    handler = signal.getsignal(signal.SIGALRM)
    check_environment(Walk, steps=10)
    remaining, _ = signal.setitimer(signal.ITIMER_REAL, *previous)
    assert 40 < remaining <= 50
    assert signal.getsignal(signal.SIGALRM) is handler


def test_outside_the_main_thread_all_but_hanging_is_found():
    found: list[Finding] = []
    thread = threading.Thread(target=lambda: found.extend(check_environment(NanReward)))
    thread.start()
    thread.join()
    assert [finding.severity for finding in found] == ["error"]


def test_a_slow_environment_is_told_its_speed():
    (finding,) = check_environment(Slow, steps=15)
    assert finding.severity == "warning"
    assert "steps/s" in finding.found


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "srl.testing.environments:tracer"])
def test_healthy_environments_have_no_findings(name: str):
    assert check_environment(name) == []


def test_a_healthy_function_has_no_findings():
    assert check_environment(Walk) == []


def test_an_unknown_name_is_a_finding():
    (finding,) = check_environment("CartPol-v1")
    assert "CartPole-v1" in finding.found


def test_the_report_has_errors_first_and_counts():
    findings = [Finding("warning", "w", "x", "y"), Finding("error", "a", "b", "c")]
    assert report(findings, "MyEnv") == (
        "MyEnv: 1 error, 1 warning\n\n"
        "error: wanted a\n  found: b\n  do:    c\n\n"
        "warning: wanted w\n  found: x\n  do:    y"
    )
    assert has_errors(findings)
    assert not has_errors(findings[:1])
    assert report([], "MyEnv") == "MyEnv: nothing wrong was found"
