"""The contract of algorithms, policies and trainers: defaults of the base classes, and the checker that users run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.algorithm_kinds import KINDS
from support.counting import CountingConfig

import srl
from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.mappo import IPPOConfig
from srl.algorithms.returns.gae import generalized_advantages
from srl.api.algorithm import AlgorithmConfig, UpdateCost
from srl.api.policy import Decision, Policy
from srl.api.spaces import Box, Discrete, Space, array_spec
from srl.api.trainer import Trainer, TrainerGroup, TrainResult, Trajectory
from srl.base.object_names import load_object
from srl.base.state import NotResumable, State
from srl.base.tree import Array, Tree, TreeSpec
from srl.testing import check_algorithm
from srl.testing.findings import report

OBSERVATION, ACTION = Box((4,)), Discrete(2)
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_algorithm.py"


@dataclass(frozen=True)
class LinearConfig(AlgorithmConfig):
    """REINFORCE with a linear policy in numpy. It implements the abstract methods only; `fault` breaks the contract."""

    fault: str = ""

    def check(self, observation: Space, action: Space) -> None:
        if not (isinstance(observation, Box) and isinstance(action, Discrete)):
            raise ValueError(f"expected Box and Discrete, found {observation} and {action}")

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {} if self.fault == "no action in the spec" else {"action": array_spec(action)}

    def build_policy(self, observation: Space, action: Space, seed: int) -> LinearPolicy:
        return LinearPolicy(self.fault, seed)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> LinearTrainer:
        assert isinstance(action, Discrete)
        return LinearTrainer(self.fault, (int(np.prod(observation.shape)), action.n), seed)  # type: ignore[union-attr]


class LinearPolicy(Policy):
    def __init__(self, fault: str, seed: int) -> None:
        self._fault = fault
        self._generator = np.random.default_rng(None if fault == "unseeded policy" else seed)
        self._buffer = np.zeros(0, np.int64)
        if fault == "version before load":
            self.version = 0

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        logits = np.asarray(observation) @ self._weights
        noise = self._generator.gumbel(size=logits.shape)
        action = (logits if greedy and self._fault != "greedy draws" else logits + noise).argmax(1)
        if self._fault == "another dtype":
            return {"action": action.astype(np.float32)}
        if self._fault == "out of range":
            return {"action": action + 1}
        if self._fault == "undeclared array":
            return {"action": action, "value": np.zeros(len(action))}
        if self._fault == "reused buffer":
            self._buffer.resize(len(action), refcheck=False)
            self._buffer[:] = action
            return {"action": self._buffer}
        return {"action": action}

    def load(self, parameters: Array, version: int) -> None:
        vector = parameters if self._fault == "parameters not copied" else parameters.copy()
        self._weights = vector.reshape(4, -1)
        if self._fault != "version not set":
            self.version = version
        if self._fault == "depends on the version":
            self._weights = self._weights * (-1) ** version

    def state(self) -> State:
        return {} if self._fault == "policy restores nothing" else super().state()

    def restore(self, state: State) -> None: ...


class LinearTrainer(Trainer):
    def __init__(self, fault: str, shape: tuple[int, int], seed: int) -> None:
        self._fault = fault
        rng = np.random.default_rng(None if fault == "unseeded trainer" else seed)
        self._weights = rng.standard_normal(shape).astype(np.float32)
        self._momentum = np.zeros(shape, np.float32)
        self._steps = np.zeros(1, np.int64)
        self._last: Trajectory | None = None

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        self._steps += 1
        acting = batch.acting[:-1]
        ends = (batch.terminated, batch.truncated, batch.acting)
        gain = generalized_advantages(batch.reward, np.zeros_like(batch.reward), *ends, 0.9, 1.0)
        if self._fault == "learns from rows without a decision":
            gain, acting = batch.reward[:-1], np.ones_like(acting)
        observation = np.asarray(batch.observation)[:-1][acting]
        if self._fault == "keeps arrays of a batch" and self._last is not None:
            gain = gain + self._last.reward[:-1].mean()
        self._last = batch
        logits = observation @ self._weights
        odds = np.exp(logits - logits.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        chosen = np.eye(odds.shape[1])[np.asarray(batch.decision["action"])[:-1][acting]]
        gradient = observation.T @ ((chosen - odds) * gain[acting][:, None])
        skipped = not np.isfinite(gradient).all()
        if not skipped or self._fault == "learns from NaN":
            self._momentum += gradient.astype(np.float32)
            if self._fault != "learns nothing":
                self._weights += 0.01 * self._momentum
        if self._fault == "writes to the batch":
            batch.reward[:] = 0.0
        if self._fault == "refuses everything":
            skipped = True
        metrics = {"gain": np.nan if self._fault == "metrics of NaN" else float(gain[acting].mean())}
        return TrainResult(batch.num_decisions + (self._fault == "counts wrongly"), {} if skipped else metrics, skipped)

    def parameters(self) -> Array:
        vector = self._weights.reshape(-1)
        return vector.astype(np.float64) if self._fault == "float64 parameters" else vector

    def state(self) -> Mapping[str, Array]:
        state: dict[str, Array] = {"parameters": self._weights.reshape(-1), "momentum": self._momentum}
        if self._fault == "no parameters in the state":
            del state["parameters"]
        if self._fault == "forgets its momentum":
            del state["momentum"]
        if self._fault == "state grows":
            state["history"] = np.zeros(int(self._steps[0]))
        return state

    def restore(self, state: Mapping[str, Array]) -> None:
        if self._fault != "restores nothing":
            for name, array in self.state().items():
                array[...] = state[name]

    def join(self, group: TrainerGroup) -> None:
        raise NotImplementedError


FAULTS = {
    "no action in the spec": "`decision_spec` to contain `action`",
    "version before load": "`version` -1 before the first `load`",
    "version not set": "`load` to set `version`",
    "depends on the version": "decisions that do not depend on the version",
    "greedy draws": "the same greedy decision",
    "unseeded policy": "the same decisions from two policies",
    "another dtype": "decisions of shapes and dtypes",
    "undeclared array": "decisions of shapes and dtypes",
    "out of range": "actions of Discrete",
    "reused buffer": "new arrays in each decision",
    "parameters not copied": "the same greedy decision",
    "policy restores nothing": "the same decision after `restore`",
    "unseeded trainer": "the same parameters from two trainers",
    "float64 parameters": "`parameters` to be float32 [P]",
    "no parameters in the state": "`state` to contain `parameters`",
    "learns nothing": "`step` to change `parameters`",
    "refuses everything": "an update on finite data",
    "counts wrongly": "num_decisions",
    "metrics of NaN": "finite metrics",
    "state grows": "arrays of the same names and shapes",
    "writes to the batch": "an unchanged batch",
    "restores nothing": "`state` to return the array 'parameters' passed to `restore`",
    "forgets its momentum": "a restored trainer to learn exactly",
    "keeps arrays of a batch": "updates that do not depend on the arrays of earlier batches",
    "learns from rows without a decision": "rewards of rows without a decision",
    "learns from NaN": "an update with a reward of NaN to be skipped",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_finds_a_planted_mistake(fault: str) -> None:
    findings = check_algorithm(LinearConfig(fault), OBSERVATION, ACTION)
    found = [finding.expected for finding in findings if finding.severity == "error"]
    assert any(expected.startswith(FAULTS[fault]) for expected in found), report(findings, fault)


def test_a_correct_algorithm_without_optional_methods_gets_only_a_hint() -> None:
    (finding,) = check_algorithm(LinearConfig(), OBSERVATION, ACTION)
    assert (finding.severity, finding.expected) == ("warning", "a policy that can be saved")


def test_exceptions_and_other_classes_are_findings() -> None:
    (finding,) = check_algorithm(LinearConfig(), Discrete(2), ACTION)
    assert "expected Box and Discrete" in finding.found
    (finding,) = check_algorithm(object(), OBSERVATION, ACTION)
    assert "inherits from srl.api.algorithm.AlgorithmConfig" in finding.expected


@pytest.mark.parametrize("kind", [*KINDS.values(), (IPPOConfig(), OBSERVATION, ACTION)], ids=[*KINDS, "ippo"])
def test_built_in_algorithms_pass(kind: tuple[ActorCriticConfig, Space, Space]) -> None:
    assert check_algorithm(*kind) == []


def test_the_example_and_the_counting_fake_pass() -> None:
    example = load_object(f"{EXAMPLE}:A2CConfig")()
    try:
        assert check_algorithm(example, OBSERVATION, ACTION) == []
    finally:
        sys.modules.pop(type(example).__module__, None)
    for memory in (False, True):
        assert check_algorithm(CountingConfig(memory=memory), OBSERVATION, ACTION) == []


def test_the_defaults_describe_an_algorithm_that_implements_only_the_abstract_methods() -> None:
    config = LinearConfig()
    assert config.on_cpu() is config
    assert (config.compute_device(), config.suggested_lanes(), config.suggested_horizon()) == ("cpu", None, None)
    assert (config.update_cost(), config.discount()) == (UpdateCost(1, 1), None)
    assert (config.memory_kind(), config.action_mask_key(), config.global_observation_keys()) == ("", "", ())
    with pytest.raises(ValueError, match="policies of LinearConfig cannot be exported"):
        config.build_network(OBSERVATION, ACTION, 0)
    trainer = config.build_trainer(OBSERVATION, ACTION, 0)
    assert trainer.uncommitted_state() == {}
    trainer.restore_uncommitted({})
    policy = config.build_policy(OBSERVATION, ACTION, 0)
    with pytest.raises(NotResumable, match="LinearPolicy has no `state`"):
        policy.state()


def test_presets_describe_themselves_by_their_options() -> None:
    config = srl.PPOConfig(device="cuda:1", gamma=0.5, epochs=3, num_minibatches=2, memory="gru", mask_key="mask")
    assert (config.compute_device(), config.on_cpu()) == ("cuda:1", replace(config, device="cpu"))
    assert (config.update_cost(), config.discount()) == (UpdateCost(3, 2), 0.5)
    assert (config.memory_kind(), config.action_mask_key()) == ("gru", "mask")
    assert srl.MAPPOConfig().global_observation_keys() == ("state",)
    assert (srl.A2CConfig().suggested_lanes(), srl.A2CConfig().suggested_horizon()) == (16, 8)


def test_an_algorithm_with_the_abstract_methods_only_trains_and_evaluates(tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 200, "lanes": 4, "horizon": 8, "scheduler": "inline", "sinks": ()}
    run = srl.train("CartPole-v1", algo=LinearConfig(), root=tmp_path, **options)
    assert run.status.steps >= 200
    assert srl.evaluate(run.path, episodes=2).mean > 0.0
