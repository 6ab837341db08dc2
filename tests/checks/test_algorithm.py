"""`srl check-algo`: correct algorithms pass, broken ones fail, and unsupported probes are reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.counting import CountingConfig

from srl.algorithms.mappo import MAPPOConfig
from srl.algorithms.offline.config import IQLConfig
from srl.algorithms.ppo.config import PPOConfig
from srl.api.policy import Decision, Policy
from srl.api.spaces import Space
from srl.api.trainer import Trainer, TrainResult, Trajectory
from srl.base.tree import Array, Tree
from srl.checks import algorithm
from srl.checks.algorithm import ProbeResult, check_algo, has_failed
from srl.cli.main import main
from srl.experiments.session.run import RunFailed
from srl.replay.hindsight import Hindsight


class Altered:
    """A trainer whose batches are changed before they reach it."""

    def __init__(self, trainer: Trainer, alter: Callable[[Trajectory], Trajectory]) -> None:
        self._trainer = trainer
        self._alter = alter

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        return self._trainer.step(self._alter(batch), progress)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)


class Forgetful:
    """A policy that never resets its memory."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        return self._policy.act(observation, state, np.zeros_like(first), greedy=greedy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)


@dataclass(frozen=True)
class NoBootstrap(PPOConfig):
    """A trainer that treats truncation as termination."""

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Any:
        return Altered(super().build_trainer(observation, action, seed), _terminated)


def _terminated(batch: Trajectory) -> Trajectory:
    return replace(batch, terminated=batch.terminated | batch.truncated, truncated=np.zeros_like(batch.truncated))


@dataclass(frozen=True)
class LateReward(PPOConfig):
    """A trainer whose rewards are shifted by one row."""

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Any:
        return Altered(
            super().build_trainer(observation, action, seed),
            lambda batch: replace(batch, reward=np.roll(batch.reward, 1, axis=0)),
        )


@dataclass(frozen=True)
class NeverFirst(PPOConfig):
    """A policy and a trainer that keep the memory beyond the end of an episode."""

    def build_policy(self, observation: Space, action: Space, seed: int) -> Any:
        return Forgetful(super().build_policy(observation, action, seed))

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Any:
        return Altered(
            super().build_trainer(observation, action, seed),
            lambda batch: replace(batch, first=np.zeros_like(batch.first)),
        )


@pytest.mark.parametrize(("broken", "probe"), [(NoBootstrap, "endless"), (LateReward, "delayed")])
def test_a_broken_algorithm_fails_the_probe_for_its_error(broken: type[PPOConfig], probe: str) -> None:
    (result,) = check_algo(broken(), probes=(probe,))
    assert result.verdict == "fail", result
    assert has_failed([result])


def test_a_memory_that_is_not_reset_is_detected_by_its_effect() -> None:
    (result,) = check_algo(NeverFirst(), probes=("leak",))
    assert result.verdict == "fail"
    assert result.found["effect of the previous episode's memory"] > 0.01
    assert result.found["return"] > 0.9, "a policy that remembers the previous episode knows the answer"


def test_correct_algorithms_pass_the_same_probes() -> None:
    results = check_algo("ppo", probes=("delayed", "endless"))
    assert [result.verdict for result in results] == ["pass", "pass"]
    assert results[0].expected == pytest.approx({"value at first": 0.9, "value then": 1.0})
    assert results[1].expected == pytest.approx({"value": 2.0})
    for result in results:
        assert result.found == pytest.approx(result.expected, rel=0.02)


def test_options_of_the_user_are_kept_and_change_the_expected_values() -> None:
    (result,) = check_algo("ppo", probes=("delayed",), ppo={"gamma": 0.5})
    assert result.expected == {"value at first": 0.5, "value then": 1.0}
    assert result.verdict == "pass"


def test_an_unsupported_probe_is_reported_and_does_not_pass() -> None:
    results = check_algo(CountingConfig(), probes=("endless", "memory"))
    assert [result.verdict for result in results] == ["not supported", "not supported"]
    assert [result.note for result in results] == [
        "its config has no discount (`discount` returns None), on which the answer depends",
        "its decisions have no `state`: the policy has no memory",
    ]
    assert has_failed(results), "no probe could be run"


@dataclass(frozen=True)
class Careless(CountingConfig):
    """Accepts every space, and fails on observations of several parts."""

    def build_policy(self, observation: Space, action: Space, seed: int) -> Any:
        assert observation.shape == (1,)  # type: ignore[union-attr]
        return super().build_policy(observation, action, seed)


def test_a_probe_that_raises_is_reported_and_the_others_are_run() -> None:
    masked, memory = check_algo(Careless(), probes=("masked", "memory"))
    assert (masked.verdict, memory.verdict) == ("fail", "not supported")
    assert "AttributeError" in masked.note
    assert f"at {__file__}:" in masked.note
    assert "its `check` must raise ValueError" in masked.note


@dataclass(frozen=True)
class BrokenCheck(CountingConfig):
    def check(self, observation: Space, action: Space) -> None:
        raise TypeError("check is broken")


def test_a_check_of_spaces_that_raises_is_reported_in_every_row() -> None:
    results = check_algo(BrokenCheck())
    assert results[0].probe == "contract"
    assert {result.verdict for result in results[:5]} == {"fail"}
    assert all("check is broken" in result.note for result in results[:5])


def test_the_command_prints_a_table_and_fails_with_its_algorithm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\nfrom srl.algorithms.ppo.config import PPOConfig\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(PPOConfig):\n    pass\n"
    )
    assert main(["check-algo", f"{path}:Mine", "--probe", "constant"]) == 0
    shown = capsys.readouterr().out
    assert "constant" in shown
    assert "pass" in shown
    assert main(["check-algo", "ppo", "--probe", "constant", "--effort", "0.02", "--algo.learning-rate", "1e-9"]) == 1
    assert "fail" in capsys.readouterr().out


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-algo", "--json", "impala", "--probe", "chosen", "--algo.hidden-sizes", "8"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["probe"], result["verdict"], result["expected"]) == ("chosen", "pass", {"return": 1.0})


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["ppo", "--probe", "chozen"], "srl: unknown probe 'chozen'; choose from constant, "),
        (["pppo"], "unknown algorithm 'pppo'"),
        (["ppo", "--effort", "0"], "effort must be positive, found 0"),
        (["ppo", "--impala.gamma", "0.5"], "--impala.gamma is an option of impala, but the algorithm is ppo"),
    ],
)
def test_wrong_arguments_are_refused(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-algo", *words]) == 2
    output, error = capsys.readouterr()
    assert text in error
    assert output == ""
    assert "Traceback" not in error


def verdicts(results: list[ProbeResult]) -> dict[str, str]:
    return {result.probe: result.verdict for result in results}


def test_a_critic_that_reads_more_than_its_actor_passes() -> None:
    results = check_algo("mappo", probes=("state", "peeking"))
    assert [result.verdict for result in results] == ["pass", "pass"], results


@dataclass(frozen=True)
class Peeking(MAPPOConfig):
    """An actor that reads the state, too."""

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        return (
            replace(self, global_keys=()).build_policy(observation, action, seed)
            if self.global_keys
            else (super().build_policy(observation, action, seed))
        )

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        return (
            replace(self, global_keys=()).build_trainer(observation, action, seed)
            if self.global_keys
            else (super().build_trainer(observation, action, seed))
        )


@dataclass(frozen=True)
class Blind(MAPPOConfig):
    """A critic that does not read the state."""

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Any:
        return Altered(
            super().build_trainer(observation, action, seed),
            lambda batch: replace(
                batch, observation=dict(batch.observation, state=np.zeros_like(batch.observation["state"]))
            ),
        )


def test_failed_training_is_a_result_with_and_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RunFailed("it broke\nhere are the logs")

    monkeypatch.setattr(algorithm, "start", fail)
    memory, control = check_algo("ppo", probes=("memory",))
    assert (memory.verdict, control.verdict) == ("fail", "fail")
    assert control.note == "memory none, training failed: it broke"


@pytest.mark.parametrize(("config", "probe"), [(Peeking, "peeking"), (Blind, "state")])
def test_wrong_observations_of_actor_or_critic_are_detected(config: type[MAPPOConfig], probe: str) -> None:
    (result,) = check_algo(config(), probes=(probe,))
    assert result.verdict == "fail", result


def test_q_learning_passes_the_probes_of_bootstrapping() -> None:
    """Truncation bootstraps, from the right row, and termination does not, also with returns of several steps."""
    settings = {"n_step": 3, "hidden_sizes": (32,), "learning_rate": 3e-3}
    results = check_algo("dqn", probes=("endless", "ending", "memory"), dqn=settings, effort=0.7)
    assert [result.verdict for result in results] == ["pass", "pass", "not supported"], results
    assert "does not use the option `memory`" in results[-1].note


@pytest.mark.slow
def test_hindsight_passes_its_probe_and_fails_with_rewards_of_other_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts(check_algo("dqn", probes=("goals",))) == {"goals": "pass"}
    right = Hindsight._evaluated
    monkeypatch.setattr(
        Hindsight, "_evaluated", lambda self, achieved, desired, shape: right(self, achieved[::-1], desired, shape)
    )
    assert verdicts(check_algo("dqn", probes=("goals",))) == {"goals": "fail"}


@pytest.mark.parametrize("bug", ["", "sign"])
def test_alphazero_passes_its_probes_and_fails_with_values_of_the_other_player(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bug == "sign":
        targets = "srl.algorithms.alphazero.trainer.value_targets"
        monkeypatch.setattr(targets, lambda reward, discount, value, mover, after: reward + discount * value)
    planned, replied = check_algo("alphazero", probes=("planned", "replied"))
    assert planned.verdict == "pass", planned
    assert replied.verdict == ("fail" if bug == "sign" else "pass"), replied
    (turns,) = check_algo("alphazero", probes=("turns",))
    assert turns.note == "the probe has no simulator"
    (asked,) = check_algo("ppo", probes=("planned",))
    assert asked.note == "it does not search with the rules of a game"


def test_hindsight_is_not_asked_of_algorithms_without_it() -> None:
    (result,) = check_algo("ppo", probes=("goals",))
    assert result.verdict == "not supported"
    assert "no `her`" in result.note


FOR_OTHERS = ["mixed", "expectile", "planned", "replied"]
"""Probes of algorithms that learn from recorded data or search with a simulator."""
ON_REPLAY = {"dqn": ["memory", "leak"], "rainbow": ["memory", "leak"], "apex": ["memory", "leak"], "r2d2": ["goals"]}
"""Algorithm -> probes that it does not support."""


@pytest.mark.slow
@pytest.mark.parametrize("algo", ON_REPLAY)
def test_q_learning_passes_all_probes_that_fit(algo: str) -> None:
    pytest.importorskip("pettingzoo")
    found = verdicts(check_algo(algo))
    not_asked = [*ON_REPLAY[algo], "state", "peeking", *FOR_OTHERS, "real"]
    assert [found.pop(probe) for probe in not_asked] == ["not supported"] * len(not_asked)
    assert set(found.values()) == {"pass"}, found


@pytest.mark.parametrize(("algo", "expected"), [("iql", 1.0), ("bc", -1.0)])
def test_recorded_data_is_improved_on_or_imitated(algo: str, expected: float) -> None:
    pytest.importorskip("h5py")
    options: dict[str, Any] = {algo: {"hidden_sizes": (32,)}}
    (result,) = check_algo(algo, probes=("mixed",), effort=0.5, **options)
    assert (result.verdict, result.expected) == ("pass", {"return": expected}), result


def test_the_value_of_iql_is_an_expectile() -> None:
    pytest.importorskip("h5py")
    (result,) = check_algo("iql", probes=("expectile",), iql={"hidden_sizes": (32,), "expectile": 0.8})
    assert result.verdict == "pass", result
    assert result.expected == pytest.approx({"value": 0.6})


@dataclass(frozen=True)
class Imitating(IQLConfig):
    """Its weights do not depend on advantages."""

    beta: float = 0.0


def test_an_algorithm_that_only_imitates_mixed_data_fails() -> None:
    pytest.importorskip("h5py")
    (result,) = check_algo(Imitating(hidden_sizes=(32,)), probes=("mixed",), effort=0.5)
    assert (result.verdict, result.found) == ("fail", {"return": -1.0}), result


def test_an_expert_is_imitated() -> None:
    (result,) = check_algo("dagger", probes=("credited",), dagger={"hidden_sizes": (32,)}, effort=0.5)
    assert result.verdict == "pass", result


def test_an_algorithm_without_choices_gets_real_valued_actions() -> None:
    results = check_algo("ddpg", probes=("ending", "masked"), ddpg={"hidden_sizes": (32,)})
    assert [result.verdict for result in results] == ["pass", "not supported"], results


def test_the_value_of_a_team_is_that_of_its_mixing_network() -> None:
    (result,) = check_algo("qmix", probes=("constant",), qmix={"hidden_sizes": (32,), "mixing_size": 8})
    assert result.verdict == "pass", result


LEARNS = {"sac": 9, "td3": 8, "ddpg": 8, "bc": 4, "dagger": 3, "iql": 10, "td3bc": 8, "cql": 10, "vdn": 9, "qmix": 9}
"""Algorithm -> least number of probes that it passes, besides those of its contract."""


@pytest.mark.slow
@pytest.mark.parametrize("algo", LEARNS)
def test_every_algorithm_that_learns_from_replay_or_data_passes_what_it_supports(algo: str) -> None:
    pytest.importorskip("h5py")
    found = verdicts(check_algo(algo))
    assert found.pop("contract") == "pass"
    assert set(found.values()) == {"pass", "not supported"}, found
    assert list(found.values()).count("pass") >= LEARNS[algo], found


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "a2c", "impala", "ppg", "ippo", "mappo"])
def test_all_built_in_algorithms_pass_all_probes(algo: str) -> None:
    pytest.importorskip("pettingzoo")
    found = verdicts(check_algo(algo))
    masked = found.pop("masked")
    assert masked in ("pass", "not supported")
    not_asked = [*FOR_OTHERS, "goals", *(["turns"] if algo == "mappo" else ["state", "peeking"])]
    assert [found.pop(probe) for probe in not_asked] == ["not supported"] * len(not_asked)
    assert set(found.values()) == {"pass"}, found
    assert "memory, control" in found


@pytest.mark.slow
def test_an_lstm_passes_too() -> None:
    assert set(verdicts(check_algo("ppo", probes=("memory", "leak"), ppo={"memory": "lstm"})).values()) == {"pass"}


@dataclass(frozen=True)
class Versioned(PPOConfig):
    """Its policies have a version before anything is loaded."""

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        policy = super().build_policy(observation, action, seed)
        policy.version = 0
        return policy


def test_the_contract_is_checked_before_the_probes() -> None:
    results: list[ProbeResult] = []

    def stop_after_the_first(result: ProbeResult) -> None:
        results.append(result)
        raise KeyboardInterrupt

    for config in (Versioned(), PPOConfig()):
        with pytest.raises(KeyboardInterrupt):
            check_algo(config, on_result=stop_after_the_first)
    assert [(result.probe, result.verdict) for result in results] == [("contract", "fail"), ("contract", "pass")]
    assert "`version` -1 before the first `load`" in results[0].note
    assert has_failed([results[0]])
