"""Lanes of a PettingZoo environment: seeds, steps, and replacement of failed copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

import numpy as np

from srl.api.control import OptionValue
from srl.api.lanes import Lanes, LaneSpec, TimeStep
from srl.base.errors import traceback_of
from srl.base.seeding import generator_state, restore_generator
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Array, Tree
from srl.environments.adapters.environment_state import environment_state, restore_environment
from srl.environments.adapters.masks import MASK_KEY
from srl.environments.conversion import rendered_frame
from srl.environments.factories import copy_seeds
from srl.environments.failures import EnvironmentBroken, count_failure
from srl.environments.pettingzoo.rows import Rows, make_rows


class Game(Protocol):
    """One copy's current episode, which writes its agents' rows. Any exception is a failure of the environment."""

    def start(self, environment: Any, seed: int) -> None:
        """Start an episode."""

    def advance(self, environment: Any, actions: Sequence[Array]) -> None:
        """Take one step; `actions` holds each team's native actions, [copies, ...]."""

    def state(self) -> Any:
        """Return, as plain data, the part of the episode's state that is not in the environment."""

    def restore(self, state: Any) -> None: ...

    @property
    def finished(self) -> bool:
        """Whether the episode has ended for all agents."""


class PettingZooLanes(Lanes):
    """Lanes with one team per agent and, in each team, one lane per copy.

    Every episode has its own seed, derived from the one given to `reset`: runs are reproducible even if an environment
    draws a new seed when reset without one, and a failure report names the seed that reproduces the failure.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Any],
        make_game: Callable[[int, Sequence[Rows]], Game],
        aligned: bool,
        environment: Any,
        num_copies: int,
        mask_key: str = MASK_KEY,
        log_info: tuple[str, ...] = (),
    ) -> None:
        """`environment` becomes the first copy; `make` makes the others."""
        self._name = name
        self._make = make
        self._options: dict[str, OptionValue] = {}  # attributes set during the run
        self._environments = [environment, *(make() for _ in range(num_copies - 1))]
        self._rows = tuple(make_rows(environment, num_copies, aligned, make, mask_key, log_info))
        self._games = [make_game(copy, self._rows) for copy in range(num_copies)]
        self._generators = _generators(0, num_copies)
        self._seeds = [0] * num_copies  # of the episode
        self._steps = [0] * num_copies  # in the episode
        self._failures_in_a_row = [0] * num_copies
        self.spec = LaneSpec(name, num_copies, tuple(rows.team for rows in self._rows))

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._generators = _generators(seed, self.spec.num_copies)
        self._clear()
        return self._time_steps([self._start(copy) for copy in range(self.spec.num_copies)])

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        native = [rows.decode(tree) for rows, tree in zip(self._rows, actions, strict=True)]
        self._clear()
        return self._time_steps([self._step(copy, native) for copy in range(self.spec.num_copies)])

    def set_option(self, name: str, value: OptionValue) -> None:
        for environment in self._environments:
            _set_attribute(environment, name, value)
        self._options[name] = value

    def state(self) -> State:
        counters = [self._seeds, self._steps, self._failures_in_a_row, [game.state() for game in self._games]]
        state = {"counters": pack(counters)}
        for copy, environment in enumerate(self._environments):
            state |= under(f"copy/{copy}", environment_state(environment))
            state[f"generator/{copy}"] = generator_state(self._generators[copy])
        for team, rows in enumerate(self._rows):
            state |= under(f"rows/{team}", rows.state())
        return state

    def restore(self, state: State) -> None:
        self._seeds, self._steps, self._failures_in_a_row, games = unpack(state["counters"])
        for copy, environment in enumerate(self._environments):
            environment.reset(seed=self._seeds[copy])
            restore_environment(environment, part(state, f"copy/{copy}"))
            restore_generator(self._generators[copy], state[f"generator/{copy}"])
            self._games[copy].restore(games[copy])
        for team, rows in enumerate(self._rows):
            rows.restore(part(state, f"rows/{team}"))

    def render(self) -> Array:
        """Return the current frame of the first copy."""
        return rendered_frame(self._name, self._environments[0].render)

    def close(self) -> None:
        environments, self._environments = self._environments, []
        for environment in environments:
            environment.close()

    def _clear(self) -> None:
        for rows in self._rows:
            rows.clear()

    def _time_steps(self, reports: Sequence[str]) -> tuple[TimeStep, ...]:
        failures = tuple(report for report in reports if report)
        # A report belongs to a copy, not to an agent: only the first team's time step carries it.
        return tuple(
            rows.time_step(bool(failures), failures if team == 0 else (), self._seeds)
            for team, rows in enumerate(self._rows)
        )

    def _start(self, copy: int) -> str:
        """Start a new episode; return a failure report, or an empty string."""
        try:
            self._open(copy)
        except Exception as error:
            return self._replace(copy, error)
        return ""

    def _step(self, copy: int, actions: Sequence[Array]) -> str:
        if self._games[copy].finished:
            return self._start(copy)
        self._steps[copy] += 1
        try:
            self._games[copy].advance(self._environments[copy], actions)
        except Exception as error:
            return self._replace(copy, error)
        return ""

    def _open(self, copy: int) -> None:
        self._seeds[copy] = int(self._generators[copy].integers(2**31))
        self._steps[copy] = 0
        self._games[copy].start(self._environments[copy], self._seeds[copy])

    def _replace(self, copy: int, error: Exception) -> str:
        report = self._report(copy, error)
        at_once = self._steps[copy] <= 1
        self._failures_in_a_row[copy] = count_failure(self._failures_in_a_row[copy], at_once, report)
        with suppress(Exception):
            self._environments[copy].close()
        for rows in self._rows:
            rows.clear_copy(copy)
        try:
            self._environments[copy] = self._make()
            for name, value in self._options.items():
                _set_attribute(self._environments[copy], name, value)
            self._open(copy)
        except Exception as second:
            raise EnvironmentBroken(f"{report}\nIts replacement failed, too: {self._report(copy, second)}") from second
        for rows in self._rows:
            rows.fail(copy)
        return report

    def _report(self, copy: int, error: Exception) -> str:
        where = f"environment {self._name}, copy {copy}, seed {self._seeds[copy]}, step {self._steps[copy]}"
        return f"{where}: {error}\n{traceback_of(error)}"


def _set_attribute(environment: Any, name: str, value: OptionValue) -> None:
    getattr(environment.unwrapped, name)  # raises AttributeError instead of adding one that nothing reads
    setattr(environment.unwrapped, name, value)


def _generators(seed: int, num_copies: int) -> list[np.random.Generator]:
    """Return one generator of episode seeds per copy."""
    return [np.random.default_rng(one) for one in islice(copy_seeds(seed), num_copies)]
