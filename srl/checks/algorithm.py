"""`srl check-algo`: trains an algorithm on probes, small environments with known values and best returns."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.dataflow import Replay
from srl.api.lanes import TeamSpec
from srl.api.policy import Policy
from srl.api.spaces import Box, Discrete, Space
from srl.api.trainer import Trainer
from srl.base.errors import raised
from srl.base.tree import Array, Tree
from srl.checks.probe_answers import effect_of_memory, forbidden_share, observation_of, trained, untrained
from srl.checks.probe_data import record
from srl.experiments.graph.preparation import environment_for
from srl.experiments.options.algorithms import option_names, with_absolute_paths, with_settings
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.launch import start
from srl.experiments.session.run import Run, RunFailed
from srl.results.evaluate import evaluate
from srl.results.load import load
from srl.testing.algorithm_checks import check_algorithm
from srl.testing.findings import has_errors
from srl.testing.probe_cases import DISCOUNT, EXPECTILE, MODULE, KnownValue, ProbeCase, choose_cases

TOLERANCE = 0.02
EPISODES = 256
CONTRACT = "contract"
MEMORY = "gru"
NO_MEMORY = "none"
CHANCE = 0.6  # return from guessing between two actions, with a margin for luck
FORBIDDEN = "forbidden"
STALE_MEMORY = "effect of the previous episode's memory"
VARIANT = f"{MODULE}:variant"
LANES, HORIZON = 8, 8
AT_MOST = {"num_minibatches": 4, "auxiliary_every": 4}
"""Upper bounds for options. A probe's batch is small, so more minibatches take time without benefit. Its training is
short, so a periodic phase such as PPG's must run several times, on data not much older than the policy."""
MIN_TAU = 0.1  # lower bound for the speed of target networks
IN_REPLAY = {
    "learning_starts": 128,
    "batch_size": 32,
    "updates_per_decision": 0.25,
    "target_update": 5,
    "chunk": 8,
    "burn_in": 2,
    "period": 4,
    "value_min": -3.0,
    "value_max": 3.0,
    "bin_width": 0.2,
    "learning_rate_schedule": "linear",
}
"""Options of algorithms that learn from replay. A probe is short, its targets do not vary, and its values are small."""
NO_ENTROPY = {"initial_temperature": 1e-4, "learn_temperature": False}
"""Options of algorithms whose values contain the entropy of the policy, for probes of values."""
DATA_STEPS = 10
"""Gradient steps per update of a run on data. The learning rate falls once per update, and should end near 0."""
IMITATED_SHARE = 0.75
"""Share of the better action in data for algorithms that imitate it."""
BROKEN = "a policy or trainer that breaks its contract"
REFUSE = "if the algorithm does not support these spaces, its `check` must raise ValueError"
MIN_UPDATES = 50
"""Minimum number of updates, however many gradient steps each makes: training needs fresh data."""
Bound: TypeAlias = Literal["equal", "at most"]


@dataclass(frozen=True)
class ProbeResult:
    """An algorithm's result on one probe."""

    probe: str
    finds: str  # mistake that the probe detects
    verdict: Literal["pass", "fail", "not supported"]
    expected: Mapping[str, float] = field(default_factory=dict)
    """Correct value of each quantity by name. A probe passes within 2 % of it."""
    found: Mapping[str, float] = field(default_factory=dict)
    bound: Bound = "equal"
    note: str = ""  # unsupported feature, failure, or options of the probe
    seconds: float = 0.0


def check_algo(
    algo: Any = "ppo",
    *,
    probes: tuple[str, ...] = (),
    seed: int = 0,
    effort: float = 1.0,
    on_result: Callable[[ProbeResult], None] | None = None,
    **options: Any,
) -> list[ProbeResult]:
    """Train an algorithm on each probe, in this thread, and compare its values and returns with the known ones.

    Before the first probe, :func:`srl.testing.check_algorithm` checks the contract, unless `probes` are given. `algo`
    and `options` are as for :func:`srl.train`: ``check_algo("ppo", ppo={"memory": "lstm"})``, or your own
    config. A probe sets the discount and the learning rate and applies the bounds of `AT_MOST`, for fields that the
    config has and that are at their defaults. `effort` multiplies the length of training. `on_result` is called with
    each result.
    """
    if not effort > 0.0:
        raise ValueError(f"effort must be positive, found {effort}")
    cases = choose_cases(tuple(probes))
    chosen = with_absolute_paths(
        make_options(**{**options, "algo": algo, "seed": seed, "scheduler": "inline", "sinks": ()})
    )
    results: list[ProbeResult] = []
    with TemporaryDirectory(prefix="srl-check-") as root:
        runs = [_ProbeRun(case, chosen, effort, Path(root)) for case in cases]
        contract = () if probes else (result for run in runs if (result := run.contract()) is not None)
        for result in chain(islice(contract, 1), *(run.results() for run in runs)):
            results.append(result)
            if on_result is not None:
                on_result(result)
    return results


def has_failed(results: list[ProbeResult]) -> bool:
    """Return whether any probe failed or none could run."""
    return any(result.verdict == "fail" for result in results) or all(
        result.verdict == "not supported" for result in results if result.probe != CONTRACT
    )


class _Unsupported(Exception):
    """The algorithm does not support this probe; the message gives the reason."""


class _ProbeRun:
    """One probe of one algorithm."""

    def __init__(self, case: ProbeCase, options: TrainOptions, effort: float, root: Path) -> None:
        self._case = case
        self._options = options
        self._effort = effort
        self._root = root

    def results(self) -> Iterator[ProbeResult]:
        case = self._case
        try:
            team = self._team()
            changes, note = self._prepare(team)
            options = self._with(changes)
            bound: Bound = "equal" if case.at_most is None else "at most"
            expected = self._expected(options.algorithm)
            yield self._examine(team, options, ProbeResult(case.name, case.finds, "fail", expected, {}, bound, note))
            if case.needs == "memory" and case.best is not None and "memory" in changes:
                finds = "a probe that can be solved without a memory"  # the probe would detect nothing
                control = ProbeResult(
                    f"{case.name}, control", finds, "fail", {"return": CHANCE}, {}, "at most", "memory none"
                )
                yield self._examine(team, self._with({**changes, "memory": NO_MEMORY}), control)
        except _Unsupported as error:
            yield ProbeResult(case.name, case.finds, "not supported", note=str(error))
        except Exception as error:
            yield ProbeResult(case.name, case.finds, "fail", note=f"{raised(error)}; {REFUSE}")

    def contract(self) -> ProbeResult | None:
        """Check the algorithm's contract with this probe's spaces. Returns None if it does not support them."""
        began = time.perf_counter()
        try:
            team = self._team()
            config = with_settings(self._options.algorithm, self._expert(), self._options.algo)
            config.check(team.observation, team.action)
        except (_Unsupported, ValueError):
            return None
        except Exception as error:
            return ProbeResult(CONTRACT, BROKEN, "fail", note=f"{raised(error)}; {REFUSE}")
        findings = check_algorithm(config, team.observation, team.action)
        return ProbeResult(
            CONTRACT,
            BROKEN,
            "fail" if has_errors(findings) else "pass",
            note="; ".join(f"expected {finding.expected}, found {finding.found}" for finding in findings),
            seconds=round(time.perf_counter() - began, 2),
        )

    def _team(self) -> TeamSpec:
        if self._case.needs == "game" and importlib.util.find_spec("pettingzoo") is None:
            raise _Unsupported("pettingzoo is not installed: pip install 'srl-rl[pettingzoo]'")
        if (self._case.needs == "simulator") != self._options.algorithm.wants_simulator():
            alone = self._case.needs != "simulator"
            raise _Unsupported("the probe has no simulator" if alone else "it does not search with the rules of a game")
        name, options = self._environment()
        environment = environment_for(name, self._options.replace(env_args=options))
        if self._options.algorithm.wants_simulator():
            self._options = self._options.replace(
                algorithm=self._options.algorithm.for_simulator(environment.simulator())
            )
        lanes = environment.build(1)
        try:
            return lanes.spec.teams[0]
        finally:
            lanes.close()

    def _environment(self) -> tuple[str, dict[str, Any]]:
        """Return the probe's name and options. If the critic reads additional keys, the probe provides them; if the
        algorithm has no choices, its actions are real numbers."""
        case, options = self._case, dict(self._case.env_args)
        if self._real:
            options |= {"probe": case.probe, "real": True}
        global_keys = self._options.algorithm.global_observation_keys()  # only the critic reads them
        if case.needs == "state" and not global_keys:
            raise _Unsupported("its config has no `global_keys`: its critic reads the same observation as its actor")
        if not global_keys:
            return VARIANT if self._real else case.environment, options
        if case.needs == "game":
            raise _Unsupported("the correct value of a critic that observes the whole game is not known")
        return VARIANT, {**options, "probe": case.probe, "keys": [*global_keys], "hidden": case.needs == "state"}

    @property
    def _real(self) -> bool:
        """Whether the probe's actions are real numbers: by its definition, or because the algorithm has no choices."""
        if self._case.needs in ("game", "mask"):
            return False
        return self._case.needs == "real" or (
            not self._accepts(Discrete(2)) and self._accepts(Box((1,), low=-1.0, high=1.0))
        )

    def _accepts(self, action: Space) -> bool:
        try:
            self._options.algorithm.check(Box((1,)), action)
        except ValueError:
            return False
        return True

    def _expert(self) -> dict[str, str]:
        """Return the option that names an expert, for algorithms that need one and have none."""
        if getattr(self._options.algorithm, "expert", None) != "":
            return {}
        return {"expert": f"{MODULE}:{'follow_real' if self._real else 'follow'}"}

    def _recorded(self, config: AlgorithmConfig) -> bool:
        flow = config.dataflow()
        return isinstance(flow, Replay) and flow.only_recorded

    def _data(self, config: AlgorithmConfig, team: TeamSpec) -> str:
        """Record a data set. Return its path."""
        case = self._case
        share = IMITATED_SHARE if config.discount() is None and case.needs != "data" else case.better_share
        name, options = self._environment()
        directory = self._root / f"{case.name}-v0"
        try:
            return str(record(directory, name, options, team, share, self._options.run.seed))
        except ImportError as error:
            raise _Unsupported(str(error)) from error

    def _prepare(self, team: TeamSpec) -> tuple[dict[str, Any], str]:
        """Return the config changes for this probe and a note about them. Options set by the user are kept."""
        config: Any = self._options.algorithm
        used, values = option_names(type(config)), vars(config)
        defaults = {each.name: each.default for each in fields(config) if each.name in used}
        changes: dict[str, Any] = {"learning_rate": self._case.learning_rate, "gamma": DISCOUNT}
        changes |= {name: most for name, most in AT_MOST.items() if values.get(name, 0) > most}
        if isinstance(config.dataflow(), Replay):
            changes |= IN_REPLAY | self._expert() | (NO_ENTROPY if self._case.values else {})
            if values.get("tau", 1.0) < MIN_TAU:
                changes["tau"] = MIN_TAU
            if values.get("n_step", 1) < self._case.span:
                changes["n_step"] = self._case.span
            elif self._case.values and self._case.best is not None:
                changes["n_step"] = 1  # returns of several steps are those of the policy that explored
        note = ""
        if self._case.needs == "memory" and "memory" in values and "memory" not in used:
            raise _Unsupported("it does not use the option `memory`")
        if self._case.needs == "memory" and values.get("memory") == NO_MEMORY:
            changes |= {"memory": MEMORY, "memory_size": 16}
        if self._case.needs == "goals":
            if "her" not in values:
                raise _Unsupported("its config has no `her`: it does not replace goals")
            changes["her"] = "future"
        changes = {
            name: value for name, value in changes.items() if name in defaults and values[name] == defaults[name]
        }
        try:
            fitted = self._with(changes).algorithm
            fitted.check(team.observation, team.action)
        except ValueError as error:
            raise _Unsupported(str(error)) from error
        if self._case.needs == "data" and not self._recorded(fitted):
            raise _Unsupported("it does not need recorded data")
        if self._case.needs == "game" and self._recorded(fitted):
            raise _Unsupported("data sets are of environments with one agent")
        if self._case.name == EXPECTILE and not hasattr(fitted, EXPECTILE):
            raise _Unsupported("its config has no `expectile`")
        decision = fitted.decision_spec(team.observation, team.action)
        if self._case.needs == "memory":
            if "state" not in decision:
                raise _Unsupported("its decisions have no `state`: the policy has no memory")
            note = f"memory {fitted.memory_kind()}" if fitted.memory_kind() else ""
        if self._case.values and self._values(*untrained(fitted, team), team) is None:
            raise _Unsupported("its decisions have no `value`, and neither policy nor trainer has a method `value`")
        if self._case.discounted and fitted.discount() is None:
            raise _Unsupported("its config has no discount (`discount` returns None), on which the answer depends")
        if self._case.needs == "mask" and (share := forbidden_share(untrained(fitted, team)[0], team)) > 0.0:
            raise _Unsupported(f"`action_mask` is not read: {share:.0%} of an untrained policy's actions are forbidden")
        return changes, note

    def _examine(self, team: TeamSpec, options: TrainOptions, aim: ProbeResult) -> ProbeResult:
        """Train with these options and return `aim` completed with the measured quantities."""
        began, found, note = time.perf_counter(), dict[str, float](), aim.note
        try:
            if self._recorded(options.algorithm):
                options = options.replace(data=(self._data(options.algorithm, team),))
            found = self._found(start(self._environment()[0], options, None, self._root, None), team)
        except ValueError as error:  # something is missing, such as an expert
            raise _Unsupported(str(error)) from error
        except RunFailed as error:
            note = ", ".join([*filter(None, [note]), f"training failed: {str(error).splitlines()[0]}"])
        found = {name: value for name, value in found.items() if name in (*aim.expected, FORBIDDEN)}
        correct = all(name in found and _fits(found[name], value, aim.bound) for name, value in aim.expected.items())
        seconds = round(time.perf_counter() - began, 2)
        return replace(aim, verdict="pass" if correct else "fail", found=found, note=note, seconds=seconds)

    def _expected(self, config: AlgorithmConfig) -> dict[str, float]:
        case, own = self._case, config.discount()
        discount = DISCOUNT if own is None else own
        expected = {seen.title: seen.value(discount) for seen in case.values}
        if case.name == EXPECTILE:  # of values 1 and -1 with equal shares
            expected = {"value": 2.0 * getattr(config, EXPECTILE) - 1.0}
        if case.best is not None:
            imitates = case.needs == "data" and own is None  # the action of the majority, which is the worse one
            expected["return"] = -case.best if imitates else case.best
        if case.at_most is not None:
            expected |= {"return": case.at_most, **({STALE_MEMORY: 0.0} if case.needs == "memory" else {})}
        return expected

    def _found(self, run: Run, team: TeamSpec) -> dict[str, float]:
        case = self._case
        policy = load(run.path).policy
        found: dict[str, float] = {}
        if case.values:
            value = self._values(policy, trained(run.path, team), team)
            assert value is not None
            found = {seen.title: float(number) for seen, number in zip(case.values, value, strict=True)}
        if case.best is not None or case.at_most is not None:
            found["return"] = evaluate(run.path, episodes=EPISODES, seed=1).mean
        if case.at_most is not None and case.needs == "memory":
            found[STALE_MEMORY] = effect_of_memory(policy, team)
        if case.needs == "mask" and (share := forbidden_share(policy, team)) > 0.0:
            found["return"] = float("nan")
            found[FORBIDDEN] = share
        return found

    def _values(self, policy: Policy, trainer: Trainer, team: TeamSpec) -> Array | None:
        """Return the estimates of the known values."""
        found = [self._value(policy, trainer, team, seen) for seen in self._case.values]
        known = [value for value in found if value is not None]
        return np.concatenate(known) if len(known) == len(found) else None

    def _value(self, policy: Policy, trainer: Trainer, team: TeamSpec, seen: KnownValue) -> Array | None:
        def observed(content: tuple[float, ...]) -> Tree:
            return observation_of(team, np.array([content], np.float32), hidden=self._case.needs == "state")

        state, first = None, np.ones(1, np.bool_)
        if seen.after is not None:
            state = policy.act(observed(seen.after), None, first, greedy=True).get("state")
        now = observed(seen.observation), state, first if state is None else ~first
        found = trainer.value(*now)
        return policy.value(*now) if found is None else found

    def _with(self, changes: Mapping[str, Any]) -> TrainOptions:
        """Return the options for training on this probe."""
        options = self._options
        config = with_settings(options.algorithm, changes, options.algo)
        cost = config.update_cost()
        per_batch = cost.epochs * cost.minibatches
        updates = max(1, round(max(MIN_UPDATES, self._case.gradient_steps / per_batch) * self._effort))
        flow = config.dataflow()
        if self._recorded(config):  # a step is a gradient step
            steps = max(1, round(self._case.gradient_steps * self._effort))
            environment = {"env_args": self._environment()[1], "eval_every": 0, "checkpoint_seconds": 3600.0}
            return options.replace(algorithm=config, steps=steps, batch=DATA_STEPS, **environment)
        if isinstance(flow, Replay):
            decisions = self._case.gradient_steps * self._effort / flow.updates_per_decision
            updates = flow.warmup // (LANES * HORIZON) + max(1, round(decisions / (LANES * HORIZON)))
        return options.replace(
            algorithm=config,
            env_args=self._environment()[1],
            steps=updates * LANES * HORIZON,
            lanes=LANES,
            horizon=HORIZON,
            checkpoint_seconds=3600.0,
        )


def _fits(found: float, expected: float, bound: str) -> bool:
    if bound == "at most":
        return found <= expected + 1e-4
    return abs(found - expected) <= TOLERANCE * abs(expected)
