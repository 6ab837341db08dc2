"""The algorithm contract: one config that builds matching policies and trainers for a pair of spaces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

from srl.api.control import OptionValue
from srl.api.dataflow import Dataflow, OnPolicy
from srl.api.policy import Policy
from srl.api.simulator import SimulatorConfig
from srl.api.spaces import Space
from srl.api.trainer import Trainer
from srl.base.errors import WrongValue
from srl.base.tree import ArraySpec, TreeSpec, leaves


class UpdateCost(NamedTuple):
    """Passes over the batch (`epochs`) and gradient steps per pass (`minibatches`) in one update."""

    epochs: int = 1
    minibatches: int = 1


class AlgorithmConfig(ABC):
    """Base class of an algorithm's config: a frozen dataclass whose fields are the algorithm's options, plain data that
    is stored with the run and sent to the workers. Only the four abstract methods are required."""

    UNUSED: ClassVar[tuple[str, ...]] = ()
    """Inherited fields that the algorithm does not use: they are no options of it."""

    @abstractmethod
    def check(self, observation: Space, action: Space) -> None:
        """Raise ValueError if a space is not supported. Called before anything is launched."""

    def check_lanes(self, observation: Space, action: Space, num_lanes: int) -> None:
        """Raise ValueError if a policy cannot decide for `num_lanes` lanes at once, for example because its searches
        would need too much memory. Called before anything is launched. Default: any number."""

    @abstractmethod
    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        """Return the specs of the arrays that `Policy.act` returns for one lane: `action`, and the trainer's inputs."""

    @abstractmethod
    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        """Return a new policy without parameters, which `load` sets. `seed` determines its random actions."""

    @abstractmethod
    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        """Return a trainer with initial parameters drawn from `seed`."""

    def dataflow(self) -> Dataflow:
        """Return what the trainer learns from. Default: each trajectory once, while it is new."""
        return OnPolicy()

    def build_network(self, observation: Space, action: Space, seed: int) -> tuple[Any, Any]:
        """Return the policy's torch network and action distribution, for `srl export`. Default: raises ValueError."""
        raise ValueError(
            f"policies of {type(self).__name__} cannot be exported: it has no method build_network(observation, "
            "action, seed) that returns a torch network and its action distribution"
        )

    def changeable(self) -> tuple[str, ...]:
        """Return the names of the options that may change during a run. The trainer applies them in `reconfigure`.
        Default: none."""
        return ()

    def with_option(self, name: str, value: OptionValue) -> Self:
        """Return the config with another value of one of the `changeable` options. Raises ValueError or TypeError if
        the value is invalid."""
        current = getattr(self, name)
        kind = float if current is None else type(current)
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits:
            raise ValueError(f"{name} must be of type {kind.__name__}, found {value!r}")
        return replace(self, **{name: value})  # type: ignore[type-var]  # subclasses are dataclasses

    def explores_by_lane(self) -> bool:
        """Return whether actors call `Policy.explore`, with the position of each lane, instead of `act`. Default:
        no."""
        return False

    def searches(self) -> bool:
        """Return whether policies search before they act. Default: no."""
        return False

    def with_simulations(self, number: int) -> Self:
        """Return the config of policies that search with this number of simulations per decision; 0: without a search.
        Raises ValueError if policies do not search."""
        raise ValueError(
            f"policies of {type(self).__name__.removesuffix('Config').lower()} do not search, so they have no number "
            "of simulations"
        )

    def compute_device(self) -> str:
        """Return the device of trainers and policy workers: `auto`, `cpu`, `cuda` or `cuda:1`. Default: `cpu`."""
        return "cpu"

    def on_cpu(self) -> AlgorithmConfig:
        """Return the config for the CPU, for policies in actors and policies loaded from a run."""
        return self

    def suggested_lanes(self) -> int | None:
        """Return the environment copies per actor if the user sets none. Default: None (by the kind of observation)."""
        return None

    def suggested_horizon(self) -> int | None:
        """Return the steps per block if the user sets none. Default: None (by the kind of observation)."""
        return None

    def update_cost(self) -> UpdateCost:
        """Return the passes over a batch and the gradient steps per pass, from which advice on speed is computed."""
        return UpdateCost()

    def discount(self) -> float | None:
        """Return the discount factor per step, or None if there is none."""
        return None

    def memory_kind(self) -> str:
        """Return the kind of the policy's memory (`lstm`), for reports."""
        return ""

    def action_mask_key(self) -> str:
        """Return the key of the action mask in a Dict observation; empty: masks are ignored."""
        return ""

    def global_observation_keys(self) -> tuple[str, ...]:
        """Return the keys of a Dict observation that only the critic reads, so that acting works without them."""
        return ()

    def wants_global_state(self) -> bool:
        """Return whether environments with several agents should add their global state to observations."""
        return False

    def wants_agent_ids(self) -> bool:
        """Return whether environments with several agents should add each agent's number to its observation."""
        return False

    def wants_joint_seats(self) -> bool:
        """Return whether a lane of a game should carry the moves of all seats."""
        return False

    def wants_simulator(self) -> bool:
        """Return whether the algorithm searches with the rules of the environment, which `for_simulator` gets.
        Observations then contain the simulator's states, under the key `state`, and seats are joint."""
        return False

    def for_simulator(self, simulator: SimulatorConfig) -> AlgorithmConfig:
        """Return the config with the rules of the environment, if the algorithm wants them."""
        return self

    def for_agents(self, num_agents: int, aligned: bool) -> AlgorithmConfig:
        """Return the config for the `num_agents` agents of a role, which are `aligned` if all of them act at every
        step. An algorithm that learns from joint steps completes its dataflow here, and raises ValueError for agents
        that take turns. Default: each agent is learned from by itself."""
        return self


def check_decision(config: AlgorithmConfig, observation: Space, action: Space) -> None:
    """Raise WrongValue if the arrays of a decision are not described as they should be."""
    spec: Any = config.decision_spec(observation, action)
    if (
        not isinstance(spec, dict)
        or "action" not in spec
        or not all(isinstance(each, ArraySpec) for _, each in leaves(spec))
    ):
        raise WrongValue(
            f"`decision_spec` of {type(config).__name__} must return the specs of the arrays of a decision, such as "
            f'{{"action": array_spec(action)}} (from srl.api.spaces import array_spec); found {spec!r}'
        )
