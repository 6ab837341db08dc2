"""A common interface for checking every kind of environment, with a time limit for each call."""

from __future__ import annotations

import copy
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

from srl.base.errors import raised
from srl.testing.env_checks.values import same
from srl.testing.findings import Findings


class DeadlineExceeded(BaseException):
    """A call took too long; the message names the line it had reached. Not an Exception, because environments may catch
    those."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the body after `seconds`.

    Only Python code in the main thread can be interrupted; elsewhere the body runs without a limit. The caller's own
    timer (such as pytest-timeout's) continues afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown place"
        raise DeadlineExceeded(where)

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, expire)
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if delay:
            signal.setitimer(signal.ITIMER_REAL, max(delay - (time.monotonic() - started), 1e-3), interval)


@dataclass
class AgentResult:
    """Values that one agent received; reward, `terminated` and `truncated` are None after a reset."""

    observation: Any
    reward: Any = None
    terminated: Any = None
    truncated: Any = None

    @property
    def ended(self) -> bool:
        return bool(self.terminated) or bool(self.truncated)


@dataclass
class StepResult:
    """Values that all agents received, by agent name. A single agent's name is empty."""

    agents: Mapping[str, AgentResult] = field(default_factory=dict)
    ended: bool = False
    """Whether the environment must now be reset."""


class Probe(Protocol):
    """An environment stepped with random actions. Problems are added to `findings`; fatal ones raise CheckStopped."""

    limit: int | None
    """Number of steps after which every episode ends, if known."""
    keeps_observations: bool
    """Whether an observation must not change after it has been returned."""

    def check_spaces(self) -> None: ...

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        """Return the agent's observation space and action space."""

    def seed_actions(self, seed: int) -> None: ...

    def reset(self, seed: int | None) -> StepResult: ...

    def step(self) -> StepResult: ...

    def finish(self) -> None:
        """Render, if the environment has a render mode, and close."""


class Caller:
    """Calls an environment with a time limit; errors become findings."""

    def __init__(self, findings: Findings, timeout: float) -> None:
        self.findings = findings
        self.seconds = 0.0
        """Total time spent in `step`, in seconds."""
        self._timeout = timeout

    def __call__(self, what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            with deadline(self._timeout):
                return function(*args, **kwargs)
        except DeadlineExceeded as error:
            expected = f"{what} to return within {self._timeout:g} s"
            fix = "look for an endless loop, or for a wait that never ends"
            self.findings.stop(expected, f"it is stuck at {error}", fix, error)
        except Exception as error:
            fix = "correct the code at that line"
            self.findings.stop(f"{what} to succeed", f"it raised {raised(error)}", fix, error)
        finally:
            if what.startswith("step"):
                self.seconds += time.perf_counter() - started


def unpack_reset(findings: Findings, result: Any) -> Any:
    """Return the observation in the result of `reset`."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        expected = "reset to return (observation, info), where info is a dictionary"
        fix = "return observation, {} (the old Gym API returned only the observation)"
        findings.stop(expected, _kind(result), fix)
    return result[0]


def unpack_step(findings: Findings, result: Any) -> tuple[Any, ...]:
    if isinstance(result, tuple) and len(result) == 4:
        fix = "replace `done` of the old Gym API by terminated (by the task) and truncated (by a time limit)"
    else:
        fix = "return these five values"
    if not (isinstance(result, tuple) and len(result) == 5):
        findings.stop("step to return (observation, reward, terminated, truncated, info)", _kind(result), fix)
    return result


def _kind(result: Any) -> str:
    return f"a tuple of {len(result)} values" if isinstance(result, tuple) else type(result).__name__


def act(call: Caller, step: Callable[[Any], Any], action: Any) -> Any:
    """Step with an action and check that the environment does not change it."""
    before = copy.deepcopy(action)
    result = call("step(action_space.sample())", step, action)
    if not same(before, action):
        fix = "change a copy: action = action.copy()"
        call.findings.error("step to leave the action unchanged", "step changed the caller's array", fix)
    return result
