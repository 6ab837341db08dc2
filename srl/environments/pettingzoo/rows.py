"""The arrays behind a PettingZoo environment's lanes: one team per agent, one row per copy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from srl.api.block import SEED
from srl.api.lanes import TimeStep
from srl.api.spaces import choice_sizes
from srl.base.state import State
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.environments.adapters.info_facts import InfoFacts
from srl.environments.adapters.masks import from_info, inspect, mask_check, masked_team
from srl.environments.conversion import OBSERVATION, lane_decoder, observation_buffers, observation_encoder
from srl.environments.spaces import from_gymnasium


class AgentFault(Exception):
    """An agent received invalid values; its copy must be replaced."""


class Rows:
    """The values that one agent receives in every copy, written row by row and read as one time step.

    A lane starts an episode with `open`, continues with `turn`, and ends with `end`. A row that none of them writes in
    a step keeps its observation, does not act and has reward 0.
    """

    def __init__(
        self,
        agent: Any,
        environment: Any,
        num_copies: int,
        aligned: bool,
        mask_key: str,
        find_masked: Callable[[], set[Any]],
        log_info: tuple[str, ...] = (),
    ) -> None:
        """`find_masked` returns the agents whose infos contain an action mask, which is added to the observation."""
        observation_space, action_space = environment.observation_space(agent), environment.action_space(agent)
        self.agent = agent
        self._info_facts = InfoFacts(log_info, num_copies)
        self._last_infos: dict[int, Mapping[str, Any]] = {}  # copy -> info of an episode that ended in this step
        seen, action = from_gymnasium(observation_space, "observation"), from_gymnasium(action_space, "action")
        self._mask_key = mask_key
        self.team, self._num_choices = masked_team(
            str(agent), seen, action, mask_key, lambda: agent in find_masked(), aligned
        )
        self._encode: Callable[[Any], Tree] = observation_encoder(seen)
        self.decode: Callable[[Tree], Any] = lane_decoder(action)
        self._check_masks = mask_check(self.team.observation, self.team.action, mask_key)
        self._observation = observation_buffers(self.team.observation, num_copies)  # [copies, ...]
        self._leaves = dict(leaves(self._observation))
        # The mask, if an action is a single choice: then it is quick to check.
        self._one_choice = self._leaves.get(mask_key) if self._check_masks and len(choice_sizes(action)) == 1 else None
        self._reward = np.zeros(num_copies, np.float32)
        # One array for all flags that `clear` resets: terminated, truncated, acting, first, failed.
        self._flags = np.zeros((5, num_copies), np.bool_)
        self._terminated, self._truncated, self._acting, self._first, self._failed = self._flags

    def clear(self) -> None:
        self._last_infos.clear()
        self._reward[...] = 0
        self._flags[...] = False

    def clear_copy(self, copy: int) -> None:
        self._last_infos.pop(copy, None)
        self._reward[copy] = 0
        self._flags[:, copy] = False

    def open(self, copy: int, observation: Any, info: Mapping[str, Any]) -> None:
        self._write(copy, observation, info)
        self._acting[copy] = self._first[copy] = True
        self._check_choices(copy)

    def turn(self, copy: int, observation: Any, reward: Any, info: Mapping[str, Any]) -> None:
        self._write(copy, observation, info)
        self._reward[copy] = self.number(reward)
        self._acting[copy] = True
        self._check_choices(copy)

    def _check_choices(self, copy: int) -> None:
        if self._one_choice is not None and self._one_choice[copy].any():
            return
        if self._check_masks is not None:
            row = map_tree(lambda array: array[copy : copy + 1], self._observation)
            for what in self._check_masks(row, np.ones(1, bool)).values():
                raise AgentFault(f"agent {self.agent!r}: {what}")

    def end(
        self, copy: int, observation: Any, reward: Any, terminated: bool, truncated: bool, info: Mapping[str, Any]
    ) -> None:
        if observation is not None:  # Some environments return None for dead agents; the last one stays.
            self._write(copy, observation)
        self._reward[copy] = self.number(reward)
        self._terminated[copy], self._truncated[copy] = terminated, truncated
        self._last_infos[copy] = info

    def fail(self, copy: int) -> None:
        self._failed[copy] = True

    def number(self, reward: Any) -> float:
        try:
            number = float(reward)
        except (TypeError, ValueError) as error:
            raise AgentFault(f"agent {self.agent!r}: reward {reward!r} is not a number") from error
        if not math.isfinite(number):
            raise AgentFault(f"agent {self.agent!r}: reward is {number}")
        return number

    def state(self) -> State:
        """Return the observations, which a row keeps until its agent receives the next one."""
        return {f"observation/{path}": array.copy() for path, array in self._leaves.items()}

    def restore(self, state: State) -> None:
        for path, array in self._leaves.items():
            array[...] = state[f"observation/{path}"]

    def time_step(self, failed: bool, failures: tuple[str, ...], seeds: Sequence[int]) -> TimeStep:
        """Return the time step. `seeds` are those of the copies' episodes."""
        facts: dict[str, Array] = {}
        if self._last_infos:
            facts = {SEED: np.array(seeds), **self._info_facts.from_lanes(self._last_infos.items())}
        return TimeStep(
            self._observation,
            self._reward,
            self._terminated,
            self._truncated,
            self._acting,
            self._first,
            self._failed if failed else None,
            failures,
            facts,
        )

    def _write(self, copy: int, observation: Any, info: Mapping[str, Any] | None = None) -> None:
        """Write an observation. Without an info the agent does not act, and the mask allows everything."""
        try:
            tree = self._encode(observation)
            if self._num_choices:
                named = tree if isinstance(tree, Mapping) else {OBSERVATION: tree}
                free = np.ones(self._num_choices, np.uint8)
                mask = free if info is None else from_info(info, self._num_choices, key=self._mask_key)
                tree = {**named, self._mask_key: mask}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise AgentFault(f"agent {self.agent!r}: {error}") from error
        for path, leaf in leaves(tree):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                where = f" {path!r}" if path else ""
                raise AgentFault(f"agent {self.agent!r}: observation{where} contains NaN or infinity")
            self._leaves[path][copy] = leaf


def action_of(actions: Any, copy: int) -> Any:
    """Return one copy's native action, in memory that the environment may change."""
    action = actions[copy]
    return action.copy() if isinstance(action, np.ndarray) else action


def make_rows(
    environment: Any,
    num_copies: int,
    aligned: bool,
    make: Callable[[], Any],
    mask_key: str,
    log_info: tuple[str, ...] = (),
) -> Iterator[Rows]:
    agents = getattr(environment, "possible_agents", None)
    if not agents:
        raise ValueError(
            f"{environment} has no `possible_agents`, which determines the number of lanes: list all agents that may "
            "ever take part"
        )
    masked = functools.cache(lambda: _agents_with_mask(make, mask_key))
    return (Rows(agent, environment, num_copies, aligned, mask_key, masked, log_info) for agent in agents)


def _agents_with_mask(make: Callable[[], Any], mask_key: str) -> set[Any]:
    """Make and reset an extra copy; return the agents whose infos contain a mask. In a turn-based game, only the
    first agent may have an info at this point, so if any agent has a mask, all are assumed to have one."""

    def with_mask_in_info(environment: Any) -> set[Any]:
        answer = environment.reset(seed=0)
        infos = environment.infos if answer is None else answer[1]
        found = {agent for agent, info in infos.items() if mask_key in info}
        return set(environment.possible_agents) if found and answer is None else found

    return inspect(make, with_mask_in_info, otherwise=set())
