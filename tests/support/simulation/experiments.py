"""Random small graphs of workers for a simulated cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from srl.api.block import BlockSpec
from srl.api.experiment import Experiment, RestartRule, WorkerGroup
from srl.api.lanes import Lanes, LanesConfig, LaneSpec, TeamSpec, TimeStep
from srl.api.spaces import Box, Discrete, Space, array_spec
from srl.api.trainer import Trainer
from srl.base.tree import Tree
from srl.streams.push import PushStream
from srl.streams.request import RequestStream
from srl.workers.actor.worker import ActorConfig
from srl.workers.policy import PolicyWorkerConfig
from srl.workers.role import Role
from srl.workers.trainer.worker import TrainerWorkerConfig
from support.counting import CountingConfig
from support.simulation.ranks import ChainTrainer

SPACES = (Box((1,)), Discrete(2))
FOREVER = RestartRule(max_failures=1000)
TOGETHER = RestartRule(max_failures=1000, together=True)
ENDLESS = 10**9


class CounterLanes(Lanes):
    """An environment that counts its steps; every episode has seven."""

    def __init__(self, num_copies: int, num_teams: int) -> None:
        self.spec = lane_spec(num_teams, num_copies)
        self._step = 0
        self._teams = num_teams
        self._yes, self._no = np.ones(num_copies, bool), np.zeros(num_copies, bool)
        self._reward = np.zeros(num_copies, np.float32)

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._step = 0
        return self._result(first=True)

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        self._step = (self._step + 1) % 8
        return self._result(first=self._step == 0)

    def _result(self, first: bool) -> tuple[TimeStep, ...]:
        observation = np.full((len(self._yes), 1), self._step, np.float32)
        ended = self._yes if self._step == 7 else self._no
        step = TimeStep(observation, self._reward, ended, self._no, ~ended, self._yes if first else self._no)
        return (step,) * self._teams

    def close(self) -> None:
        """Nothing is held."""


def lane_spec(num_teams: int, num_copies: int = 1) -> LaneSpec:
    teams = tuple(TeamSpec(f"agent{index}", (f"agent{index}",), *SPACES) for index in range(num_teams))
    return LaneSpec("counter", num_copies, teams)


@dataclass(frozen=True)
class CounterConfig(LanesConfig):
    num_teams: int = 1

    def build(self, num_copies: int) -> Lanes:
        return CounterLanes(num_copies, self.num_teams)


@dataclass(frozen=True)
class ChainConfig(CountingConfig):
    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        return ChainTrainer()


def random_experiment(draw: random.Random) -> Experiment:
    """Return a small graph with a random number of policies, trainers, actors, batch, lag and place of inference."""
    algorithm = ChainConfig()
    num_policies, num_ranks = draw.choice((1, 1, 1, 2)), draw.choice((1, 1, 1, 2))
    horizon, lanes, ring = draw.choice((1, 2, 4)), draw.choice((1, 2)), draw.choice((1, 2))
    max_lag, batch_blocks, capacity = draw.choice((0, 1, 2)), draw.choice((1, 2, 3)), draw.choice((1, 2, 4))
    served, num_actors, num_servers = draw.random() < 0.5, draw.randint(1, 3), draw.randint(1, 2)
    block = BlockSpec(horizon, lanes, array_spec(SPACES[0]), algorithm.decision_spec(*SPACES))
    policies = tuple(f"policy{index}" for index in range(num_policies))
    roles, groups = [], []
    for index, policy in enumerate(policies):
        samples = PushStream(policy, block, batch_blocks, capacity, max_lag=max_lag, consumers=num_ranks)
        requests = RequestStream(policy, block) if served else None
        roles.append(Role(policy, algorithm, *SPACES, samples, requests, f"agent{index}"))
        trainer = TrainerWorkerConfig(policy, algorithm, *SPACES, samples, ENDLESS, 0, num_ranks, journal=True)
        rule = TOGETHER if num_ranks > 1 else FOREVER
        groups.append(WorkerGroup(f"trainers-{policy}", trainer, num_ranks, restart=rule))
        if requests is not None:
            server = PolicyWorkerConfig(policy, algorithm, *SPACES, requests)
            groups.append(WorkerGroup(f"servers-{policy}", server, num_servers, restart=FOREVER))
    environment = CounterConfig(num_policies)
    actors = ActorConfig(environment, lane_spec(num_policies), tuple(roles), lanes, ring)
    groups.append(WorkerGroup("actors", actors, num_actors, restart=FOREVER))
    return Experiment("simulated", 1, tuple(groups), policies, policies, target_steps=ENDLESS, max_lag=max_lag)
