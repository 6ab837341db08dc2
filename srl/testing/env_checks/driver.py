"""One way to drive every kind of environment for a check: what each agent received, step by step."""

from __future__ import annotations

import copy
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from srl.testing.env_checks.deadline import DeadlineExceeded, deadline
from srl.testing.env_checks.findings import Findings
from srl.testing.env_checks.values import same


class CheckStopped(Exception):
    """The environment is so wrong that going on would tell nothing; a finding says why."""


@dataclass
class Reception:
    """What one agent got; rewards and ends are None after a reset."""

    observation: Any
    reward: Any = None
    terminated: Any = None
    truncated: Any = None

    @property
    def ended(self) -> bool:
        return bool(self.terminated) or bool(self.truncated)


@dataclass
class Row:
    """What all agents got. The name of the only agent is empty."""

    agents: Mapping[str, Reception] = field(default_factory=dict)
    ended: bool = False
    """The environment must be reset."""


class Probe(Protocol):
    """An environment that chooses its own actions. Complains to `findings`, or raises CheckStopped."""

    limit: int | None
    """Steps after which an episode is known to end."""
    owns_buffers: bool
    """Whether observations belong to the caller, so that none may ever change."""

    def check_spaces(self) -> None: ...

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        """Observation and action space."""

    def seed_actions(self, seed: int) -> None: ...

    def reset(self, seed: int | None) -> Row: ...

    def step(self) -> Row: ...

    def finish(self) -> None:
        """Render, if a mode was chosen, and close."""


class Caller:
    """Calls foreign code with a bound on its time; what goes wrong becomes a finding."""

    def __init__(self, findings: Findings, timeout: float) -> None:
        self.findings = findings
        self.seconds = 0.0
        """Spent in `step`."""
        self._timeout = timeout

    def __call__(self, what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        try:
            with deadline(self._timeout):
                return function(*args, **kwargs)
        except DeadlineExceeded as error:
            self.findings.error(
                f"{what} to return within {self._timeout:g} s",
                f"it hangs at {error}",
                "look for an endless loop or wait",
            )
            raise CheckStopped from error
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            self.findings.error(
                f"{what} to return", f"it raised {error!r} at {last.filename}:{last.lineno}", "mend what raises there"
            )
            raise CheckStopped from error
        finally:
            if what.startswith("step"):
                self.seconds += time.perf_counter() - begun


def unpack_reset(findings: Findings, result: Any) -> Any:
    """The observation of what `reset` returned."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        found = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
        findings.error(
            "reset to return (observation, info), info a dictionary",
            found,
            "return observation, {}: the old API gave one",
        )
        raise CheckStopped
    return result[0]


def unpack_step(findings: Findings, result: Any) -> tuple[Any, ...]:
    if isinstance(result, tuple) and len(result) == 5:
        return result
    found = f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
    advice = "return five values"
    if isinstance(result, tuple) and len(result) == 4:
        advice = "the old API's `done` is two now: terminated (by the task) and truncated (by a time limit)"
    findings.error("step to return (observation, reward, terminated, truncated, info)", found, advice)
    raise CheckStopped


def act(call: Caller, step: Callable[[Any], Any], action: Any) -> Any:
    """Step with an action and see that the environment leaves it as it is."""
    before = copy.deepcopy(action)
    result = call("step with an action of action_space.sample()", step, action)
    if not same(before, action):
        call.findings.error(
            "the action to stay as it was", "step changed the caller's array", "copy it: action = np.clip(...)"
        )
    return result
