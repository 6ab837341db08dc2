"""The contract of algorithms, policies and trainers, as a check that users can run on their own algorithm."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.dataflow import Replay, SequenceBatch, Sequences, TransitionBatch
from srl.api.policy import Decision, Policy
from srl.api.spaces import Discrete, MultiDiscrete, Space
from srl.api.trainer import Trainer, TrainResult, Trajectory
from srl.base.errors import raised
from srl.base.state import NotResumable
from srl.base.tree import Array, ArraySpec, Tree, leaves, map_tree
from srl.environments.random_actions import random_actions
from srl.testing.findings import Finding, Findings, check_sendable

ROWS, LANES = 17, 8
GRADIENT_STEPS = 4  # minibatches of a batch from replay
READ = "read srl/api/algorithm.py, srl/api/policy.py and srl/api/trainer.py, and docs/howto/algorithm.md"


def check_algorithm(config: AlgorithmConfig, observation: Space, action: Space, seed: int = 0) -> list[Finding]:
    """Build the algorithm's policy and trainer for these spaces, let them act and learn from random data on the CPU,
    and compare their behavior with the contract. Once a group of checks finds an error, later groups are skipped."""
    findings = Findings()
    if not isinstance(config, AlgorithmConfig) or not dataclasses.is_dataclass(config):
        found = type(config).__name__
        findings.error("a dataclass that inherits from srl.api.algorithm.AlgorithmConfig", found, READ)
        return findings.all
    subject = _Subject(config.on_cpu(), observation, action, seed)
    checks: tuple[Callable[[_Subject, Findings], None], ...] = (_check_config, _check_policy, _check_trainer)
    for check in checks:
        try:
            check(subject, findings)
        except Exception as error:
            findings.error("no exception", raised(error), READ)
        if findings.have_errors:
            break
    return findings.all


def record_trajectory(
    policy: Policy,
    observation: Tree,
    rng: np.random.Generator,
    state: ArraySpec | None = None,
    num_agents: int = 1,
) -> Trajectory:
    """Return the batch that an actor with this policy would record for observations [T+1, B, ...]. Rewards and episode
    ends are random. The last observation of an episode has its own row, without a decision; the next episode starts in
    the following row. The initial state of a recurrent policy is random. The episodes of `num_agents` adjacent lanes
    end at the same steps.
    """
    rows, lanes = next(leaf.shape[:2] for _, leaf in leaves(observation))
    ends = rng.random((2, rows, lanes // num_agents)) < 0.05
    terminated, truncated = np.repeat(ends, num_agents, axis=2)
    ended = terminated | truncated
    acting, first = np.ones((rows, lanes), bool), np.zeros((rows, lanes), bool)
    acting[1:] = ~ended[:-1]
    first[2:] = ended[:-2]
    memory = None if state is None else rng.standard_normal((lanes, *state.shape)).astype(np.float32)
    decisions: list[Decision] = []
    memories: list[Any] = [memory]
    for t in range(rows):
        decisions.append(policy.act(map_tree(lambda array, t=t: array[t], observation), memories[-1], first[t]))
        memories.append(decisions[-1].get("state"))
    return Trajectory(
        observation,
        map_tree(lambda *arrays: np.stack(arrays), dict(decisions[0]), *decisions[1:]),
        rng.standard_normal((rows, lanes)).astype(np.float32),
        terminated,
        truncated,
        acting,
        first,
        np.zeros((rows, lanes), np.int32),
        None if memory is None else np.stack(memories[:-1]),
    )


def record_transitions(
    policy: Policy, observation: Tree, next_observation: Tree, rng: np.random.Generator, gamma: float
) -> TransitionBatch:
    """Return a batch that replay would draw for observations [K, B, ...]. Rewards and terminations are random."""
    steps, size = next(leaf.shape[:2] for _, leaf in leaves(observation))
    flat = map_tree(lambda array: array.reshape(steps * size, *array.shape[2:]), observation)
    decision = policy.act(flat, None, np.zeros(steps * size, bool))
    discount = np.where(rng.random((steps, size)) < 0.1, 0.0, gamma).astype(np.float32)
    return TransitionBatch(
        observation,
        map_tree(lambda array: array.reshape(steps, size, *array.shape[1:]), dict(decision)),
        rng.standard_normal((steps, size)).astype(np.float32),
        discount,
        next_observation,
        np.ones((steps, size), np.float32),
        steps * size,
    )


def record_sequences(
    policy: Policy, observation: Tree, rng: np.random.Generator, unit: Sequences, state: ArraySpec | None = None
) -> SequenceBatch:
    """Return a batch of sequences that replay would draw for observations [K, R+1, B * agents, ...]. Rewards and ends
    of episodes are random; those of the agents of one copy coincide. Some lanes are not remembered to their end: their
    last rows are not valid, and the last action before them is truncated."""
    steps, _, lanes = next(leaf.shape[:3] for _, leaf in leaves(observation))
    found = [
        record_trajectory(policy, map_tree(lambda array, k=k: array[k], observation), rng, state, unit.num_agents)
        for k in range(steps)
    ]
    for batch in found:
        short = np.repeat(rng.random(lanes // unit.num_agents) < 0.2, unit.num_agents)
        batch.acting[-2:, short] = batch.first[-2:, short] = False
        batch.truncated[-3, short] |= batch.acting[-3, short] & ~batch.terminated[-3, short]
        batch.terminated[-2:, short] = batch.truncated[-2:, short] = False
        batch.version[-1, short] = -1  # marks what is not valid

    def stacked(name: str) -> Any:
        parts = [getattr(batch, name) for batch in found]
        return map_tree(lambda *arrays: np.stack(arrays), parts[0], *parts[1:])

    rewards_and_flags = (stacked(name) for name in ("reward", "terminated", "truncated", "acting", "first"))
    rest: Any = (
        *rewards_and_flags,
        stacked("version") >= 0,
        None if state is None else stacked("state")[:, 0],
        np.ones((steps, lanes // unit.num_agents), np.float32),
        int(stacked("acting")[:, :-1].sum()),
        unit.burn_in,
    )
    return SequenceBatch(observation, stacked("decision"), *rest)


@dataclass(frozen=True)
class _Subject:
    """The algorithm under test and the data to test it with."""

    config: AlgorithmConfig
    observation: Space
    action: Space
    seed: int

    def policy(self, parameters: Array, seed: int | None = None, version: int = 0) -> Policy:
        policy = self.config.build_policy(self.observation, self.action, self.seed if seed is None else seed)
        policy.load(parameters, version)
        return policy

    def trainer(self, seed: int | None = None) -> Trainer:
        return self.config.build_trainer(self.observation, self.action, self.seed if seed is None else seed)

    def observations(self, *shape: int, seed: int = 0) -> Tree:
        """Return random observations; their action masks allow every action."""
        number, rng = int(np.prod(shape)), np.random.default_rng(self.seed + seed)
        flat = random_actions(self.observation, number, rng)
        mask = self.config.action_mask_key()
        if isinstance(flat, Mapping) and mask in flat:
            flat = {**flat, mask: map_tree(np.ones_like, flat[mask])}
        reshaped: Tree = map_tree(lambda array: array.reshape(*shape, *array.shape[1:]), flat)
        return reshaped

    def batch(self, seed: int) -> Trajectory | TransitionBatch | SequenceBatch:
        """Return a batch of the kind that the algorithm's dataflow provides."""
        flow, rng = self.config.dataflow(), np.random.default_rng(seed)
        spec = self.config.decision_spec(self.observation, self.action).get("state")
        state = spec if isinstance(spec, ArraySpec) else None
        policy = self.policy(self.trainer().parameters())
        if isinstance(flow, Replay):
            if isinstance(flow.unit, Sequences):
                unit = flow.unit
                seen = self.observations(GRADIENT_STEPS, unit.rows + 1, LANES * unit.num_agents, seed=seed)
                batch: Any = record_sequences(policy, seen, rng, unit, state)
            else:
                shape = GRADIENT_STEPS, LANES
                seen, after = self.observations(*shape, seed=seed), self.observations(*shape, seed=seed + 100)
                batch = record_transitions(policy, seen, after, rng, flow.unit.gamma**flow.unit.n_step)
            if flow.keeps_new:
                batch.new = map_tree(lambda array: array.reshape(-1, *array.shape[batch.reward.ndim :]), seen)
            return batch  # type: ignore[no-any-return]
        return record_trajectory(policy, self.observations(ROWS, LANES, seed=seed), rng, state)


def _check_config(subject: _Subject, findings: Findings) -> None:
    config = subject.config
    check_sendable(findings, config)
    if findings.have_errors:
        return
    config.check(subject.observation, subject.action)
    spec = config.decision_spec(subject.observation, subject.action)
    if "action" not in spec:
        findings.error("`decision_spec` to contain `action`", str(sorted(spec)), READ)


def _check_policy(subject: _Subject, findings: Findings) -> None:
    parameters = subject.trainer().parameters().copy()
    observation, first = subject.observations(LANES), np.ones(LANES, bool)
    fresh = subject.config.build_policy(subject.observation, subject.action, subject.seed)
    if fresh.version != -1:
        findings.error("`version` -1 before the first `load`", str(fresh.version), "leave `version` to `load`")
    given = parameters.copy()
    policy = subject.policy(given, version=3)
    if policy.version != 3:
        findings.error("`load` to set `version`", f"{policy.version} after load(parameters, 3)", READ)
    decision = policy.act(observation, None, first)
    _check_decision(subject, findings, decision)
    if findings.have_errors:
        return
    kept = copy.deepcopy(dict(decision))
    greedy = policy.act(observation, None, first, greedy=True)
    if not _same(decision, kept):
        found = "the arrays of a decision changed with the next call of `act`"
        findings.error("new arrays in each decision", found, "return copies of buffers that are reused")
    given[:] = np.nan
    if not _same(policy.act(observation, None, first, greedy=True), greedy):
        found = "another decision in a second call, after the caller overwrote the vector given to `load`"
        fix = "take the most likely action without random numbers if `greedy`, and copy the parameters in `load`"
        findings.error("the same greedy decision for the same observation", found, fix)
    if not _same(subject.policy(parameters, version=8).act(observation, None, first, greedy=True), greedy):
        findings.error("decisions that do not depend on the version", "another greedy decision with version 8", READ)
    one, two = (subject.policy(parameters, seed=7) for _ in range(2))
    if not _same(one.act(observation, None, first), two.act(observation, None, first)):
        fix = "draw from the policy's own generator, seeded with `seed`, not from a global one"
        findings.error("the same decisions from two policies with the same seed and parameters", "different ones", fix)
    _check_memory(findings, one, observation, first)
    _check_resume(findings, one, observation, first)


def _check_decision(subject: _Subject, findings: Findings, decision: Decision) -> None:
    spec = subject.config.decision_spec(subject.observation, subject.action)
    expected = {path: ((LANES, *leaf.shape), leaf.dtype) for path, leaf in leaves(spec)}
    found = {path: (np.shape(leaf), str(np.asarray(leaf).dtype)) for path, leaf in leaves(decision)}
    if found != expected:
        fix = "return from `act` exactly the arrays that `decision_spec` describes, with the lanes as first axis"
        findings.error(f"decisions of shapes and dtypes {expected}", str(found), fix)
        return
    for path, leaf in leaves(decision):
        if not np.isfinite(leaf).all():
            findings.error(f"finite numbers in the decision's {path!r}", str(leaf), "check the network's outputs")
    if isinstance(subject.action, (Discrete, MultiDiscrete)):
        size = subject.action.n if isinstance(subject.action, Discrete) else np.asarray(subject.action.nvec)
        action = np.asarray(decision["action"])
        if ((action < 0) | (action >= size)).any():
            findings.error(f"actions of {subject.action}", str(action), "count choices from 0")


def _check_memory(findings: Findings, policy: Policy, observation: Tree, first: Array) -> None:
    """Check that leftover memory does not affect the first decision of an episode."""
    start = policy.act(observation, None, first, greedy=True)
    if "state" not in start:
        return
    stale = map_tree(np.ones_like, start["state"])
    if not _same(policy.act(observation, stale, first, greedy=True), start):
        fix = "reset the state of the lanes where `first` is true"
        findings.error("an empty memory where `first` is true", "the memory of a previous episode had an effect", fix)


def _check_resume(findings: Findings, policy: Policy, observation: Tree, first: Array) -> None:
    try:
        state = {name: array.copy() for name, array in policy.state().items()}
    except NotResumable as error:
        fix = "implement `state` and `restore` for the random generator, so that inline runs resume exactly"
        findings.warning("a policy that can be saved", str(error), fix)
        return
    once = copy.deepcopy(dict(policy.act(observation, None, first)))
    policy.restore(state)
    if not _same(policy.act(observation, None, first), once):
        fix = "return everything that determines the next decisions from `state`, and set all of it in `restore`"
        findings.error("the same decision after `restore`", "another one", fix)


def _check_trainer(subject: _Subject, findings: Findings) -> None:
    trainer = subject.trainer()
    parameters = np.asarray(trainer.parameters())
    if parameters.dtype != np.float32 or parameters.ndim != 1:
        findings.error("`parameters` to be float32 [P]", f"{parameters.dtype} {list(parameters.shape)}", READ)
        return
    if not np.array_equal(parameters, subject.trainer().parameters()):
        fix = "seed the initialization with `seed`, not from a global generator"
        findings.error("the same parameters from two trainers with the same seed", "different ones", fix)
    state = trainer.state()
    if not np.array_equal(np.asarray(state.get("parameters", ())), parameters):
        fix = "return the vector of `parameters` in `state` under this name: a checkpoint contains only the state"
        findings.error("`state` to contain `parameters`", str(sorted(state)), fix)
    if not findings.have_errors:
        _check_step(subject, findings, trainer)
    if not findings.have_errors:
        _check_restore(subject, findings, trainer)
        _check_data(subject, findings)


def _check_step(subject: _Subject, findings: Findings, trainer: Trainer) -> None:
    batch, before = subject.batch(1), _copied(trainer.state())
    given = copy.deepcopy(batch)
    result = trainer.step(batch, 0.0)
    if not isinstance(result, TrainResult):
        findings.error("`step` to return a TrainResult", repr(result), READ)
        return
    if result.skipped:
        findings.error("an update on finite data", "`step` skipped it", "skip only losses and gradients of NaN or inf")
    if result.num_decisions != batch.num_decisions:
        expected, fix = f"num_decisions {batch.num_decisions}", "return the batch's own number of decisions"
        if isinstance(batch, Trajectory):
            expected += ", the rows with `acting` except row T"
            fix = "learn from the rows where `acting` is true"
        findings.error(expected, str(result.num_decisions), fix)
    wrong = {name: value for name, value in result.metrics.items() if not np.isfinite(value)}
    if wrong:
        findings.error("finite metrics", str(wrong), "report only numbers, and skip updates that are not finite")
    after = trainer.state()
    if np.array_equal(trainer.parameters(), before["parameters"]):
        fix = "return the vector that the optimizer updates"
        findings.error("`step` to change `parameters`", "the same vector", fix)
    shapes = [{name: np.shape(array) for name, array in one.items()} for one in (before, after)]
    if shapes[0] != shapes[1]:
        fix = "create all arrays, such as those of the optimizer, before the first step"
        findings.error("arrays of the same names and shapes in `state`", f"{shapes[0]}, then {shapes[1]}", fix)
    if not _same(vars(batch), vars(given)):
        findings.error("an unchanged batch", "`step` wrote to it", "copy the arrays that you change")


def _check_restore(subject: _Subject, findings: Findings, trainer: Trainer) -> None:
    other, saved = subject.trainer(seed=subject.seed + 1), _copied(trainer.state())
    other.restore(saved)
    for name, array in other.state().items():
        if not np.array_equal(array, saved[name], equal_nan=True):
            findings.error(f"`state` to return the array {name!r} passed to `restore`", "another array", READ)
    batch = subject.batch(2)
    for each in (trainer, other):
        each.step(copy.deepcopy(batch), 0.5)
    if not _same(trainer.state(), other.state()):
        fix = "return from `state` everything that an update depends on: the optimizer, counters, the seed of shuffles"
        findings.error("a restored trainer to learn exactly like the trainer that was saved", "another result", fix)


def _check_data(subject: _Subject, findings: Findings) -> None:
    """Check that updates depend only on the seed and on rows with a decision, and that NaN rewards skip an update."""
    batches = [subject.batch(1), subject.batch(2)]
    expected = _after(subject, batches)
    if not np.array_equal(_after(subject, batches), expected):
        fix = "seed every random generator with `seed`"
        findings.error("the same parameters from the same seed and batches", "different ones", fix)
    if not np.array_equal(_after(subject, batches, overwrite=True), expected):
        fix = "copy the arrays that you keep: they are reused as soon as `step` returns"
        findings.error("updates that do not depend on the arrays of earlier batches", "other parameters", fix)
    if not isinstance(batches[0], TransitionBatch):
        changed = copy.deepcopy(batches)
        for batch in changed:
            assert not isinstance(batch, TransitionBatch)
            batch.reward[~batch.acting] = 100.0
            batch.reward[..., -1, :] = 100.0
        if not np.allclose(_after(subject, changed), expected, rtol=1e-4, atol=1e-6):
            fix = "learn from the rows where `acting` is true; row T only bootstraps (srl.algorithms.returns.gae "
            fix += "does both)"
            findings.error("rewards of rows without a decision to have no effect", "other parameters", fix)
    broken = copy.deepcopy(batches[0])
    learned = np.ones_like(broken.reward, bool) if isinstance(broken, TransitionBatch) else broken.acting.copy()
    if not isinstance(broken, TransitionBatch):
        learned[..., -1, :] = False
    if isinstance(broken, SequenceBatch):
        learned[:, : broken.burn_in] = False
    broken.reward[tuple(np.argwhere(learned)[0])] = np.nan
    trainer = subject.trainer()
    before = trainer.parameters().copy()
    with np.errstate(all="ignore"):
        result = trainer.step(broken, 0.0)
    after = trainer.parameters()
    if not np.isfinite(after).all() or (result.skipped and not np.array_equal(after, before)):
        fix = "return TrainResult(..., skipped=True), parameters unchanged, if a loss or gradient is not finite"
        findings.error("an update with a reward of NaN to be skipped", "it changed the parameters", fix)


def _after(
    subject: _Subject, batches: list[Trajectory | TransitionBatch | SequenceBatch], overwrite: bool = False
) -> Array:
    """Return a new trainer's parameters after these batches. With `overwrite`, each batch's arrays are overwritten
    after its step."""
    trainer = subject.trainer()
    for batch in copy.deepcopy(batches):
        trainer.step(batch, 0.0)
        if overwrite:
            kept = {name: part for name, part in vars(batch).items() if isinstance(part, (np.ndarray, Mapping))}
            for _, array in leaves(kept):
                array[...] = 1
    return trainer.parameters().copy()


def _copied(state: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(array) for name, array in state.items()}


def _same(one: Any, other: Any) -> bool:
    pairs = [{path: leaf for path, leaf in leaves(tree) if leaf is not None} for tree in (one, other)]
    return set(pairs[0]) == set(pairs[1]) and all(
        np.array_equal(leaf, pairs[1][path]) for path, leaf in pairs[0].items()
    )
