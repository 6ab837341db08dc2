"""Several policies in one run: separate, shared and frozen ones, team rewards, metrics, evaluation, the end."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PURSUIT

import srl
from srl.base.config import from_data
from srl.cli.main import main
from srl.environments.registry import lanes_config
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.keywords import make_options
from srl.experiments.options.roles import role_options
from srl.storage import checkpoints

GAME = PURSUIT
QUICK = {"scheduler": "inline", "sinks": (), "lanes": 2, "horizon": 4, "algo": "ippo", "ippo": {"epochs": 1}}


def trained(root: Path, name: str, roles: tuple[str, ...], **options: Any) -> srl.Run:
    return srl.train(GAME, root=root, name=name, roles=roles, **{**QUICK, "steps": 60, **options})


def experiment(**options: Any) -> Any:
    return prepare(GAME, make_options(**options), frozenset(options)).experiment


ROLES = ("chaser_*=chasers", "runner_*=runners")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> srl.Run:
    """A run whose policies others may freeze."""
    return trained(tmp_path_factory.mktemp("first"), "first", ROLES)


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> srl.Run:
    """A run of many games."""
    return trained(tmp_path_factory.mktemp("longer"), "longer", ROLES, steps=600)


def test_every_policy_learns_from_its_share_of_the_steps(first: srl.Run) -> None:
    run = first
    _, metadata = checkpoints.read(checkpoints.checkpoints(run.path / "checkpoints")[-1])
    steps = {name: noted["steps"] for name, noted in metadata["policies"].items()}
    assert steps["chasers"] >= 40, "two of three agents"
    assert steps["runners"] >= 20
    assert run.status.steps == sum(steps.values())
    assert {name: policy.steps for name, policy in run.status.policies.items()} == steps


def records_of(run: srl.Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def test_metrics_and_status_are_separate_for_each_policy(longer: srl.Run) -> None:
    run = longer
    last = {name: value for record in records_of(run) for name, value in record.items()}
    for policy in ("chasers", "runners"):
        for name in (
            f"{policy}/entropy",
            f"{policy}/steps",
            f"{policy}/update",
            f"{policy}/lag_mean",
            f"{policy}/return",
            f"{policy}/length",
        ):
            assert name in last, name
    assert not {"entropy", "return", "update"} & last.keys()
    assert last["step"] == last["chasers/steps"] + last["runners/steps"] == run.status.steps
    assert run.status.return_mean is None
    chasers, runners = run.status.policies["chasers"], run.status.policies["runners"]
    assert chasers.return_mean != runners.return_mean
    assert chasers.episodes + runners.episodes == run.status.episodes
    assert run.status.updates == chasers.version + runners.version
    _, metadata = checkpoints.read(checkpoints.checkpoints(run.path / "checkpoints")[-1])
    assert all(metadata["policies"][name]["return_mean"] is not None for name in run.status.policies)


def test_every_policy_is_named_in_plots_and_lists(
    longer: srl.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = replace(longer, path=Path(shutil.copytree(longer.path, tmp_path / "run")))
    assert main(["plot", "run", "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "━━ chasers" in shown
    assert "━━ runners" in shown
    labels = [str(line.get_label()) for line in srl.plot(f"a={run.path}", f"b={run.path}").axes[0].lines]
    assert labels == ["a · chasers", "a · runners", "b · chasers", "b · runners"]
    means = {name: policy.return_mean for name, policy in run.status.policies.items()}
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))  # without runs of other tests
    assert main(["ps", "--all", "--json", "--root", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == means
    (run.path / "status.json").unlink()
    assert main(["ps", "--all", "--root", str(tmp_path)]) == 0
    assert re.search(r"killed .* chasers -?[\d.]+, runners -?[\d.]+ ", capsys.readouterr().out)


def test_a_run_has_one_row_of_metrics_per_update_and_the_same_run_has_the_same_rows(
    longer: srl.Run, tmp_path: Path
) -> None:
    runs = [longer, trained(tmp_path, "again", ROLES, steps=600)]
    rows = [[{**row, "time": 0, "elapsed": 0} for row in records_of(run)] for run in runs]
    assert rows[0] == rows[1]
    for policy, status in runs[0].status.policies.items():
        own = [row[f"{policy}/update"] for row in rows[0] if row["policy"] == policy]
        assert own == list(range(1, status.version + 1))
    steps = [row["step"] for row in rows[0]]
    assert steps == sorted(steps)


def test_metric_names_of_a_single_policy_do_not_carry_its_name(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "steps": 2000,
        "scheduler": "inline",
        "lanes": 8,
        "horizon": 16,
        "eval_every": 500,
        "eval_episodes": 2,
        "eval_share": 1.0,
    }
    run = srl.train("CartPole-v1", root=tmp_path, sinks=(), **options)
    names = {name for record in records_of(run) for name in record}
    assert {"entropy", "update", "return", "episodes", "eval/return"} <= names
    assert not [name for name in names if "policy/" in name]


def test_a_frozen_first_role_does_not_stop_evaluation(first: srl.Run, tmp_path: Path) -> None:
    roles = (f"chaser_*=chasers,frozen={first.path}", "runner_*=runners")
    evaluation: dict[str, Any] = {"eval_every": 16, "eval_episodes": 2, "eval_share": 1.0}
    run = trained(tmp_path, "second", roles, steps=400, **evaluation)
    steps = [record["step"] for record in records_of(run) if "runners/eval/return" in record]
    assert len(set(steps)) > 2
    evaluated = run.status.policies["runners"].evaluation
    assert evaluated is not None
    assert evaluated.count == len(steps)


def test_the_best_parameters_are_chosen_for_each_policy(tmp_path: Path) -> None:
    evaluation: dict[str, Any] = {"eval_every": 16, "eval_episodes": 2, "eval_share": 1.0}
    run = trained(tmp_path, "run", ROLES, steps=600, **evaluation)
    path = checkpoints.latest(run.path / "checkpoints" / "best")
    assert path is not None
    arrays, metadata = checkpoints.read(path)
    assert set(arrays) == {"chasers/parameters", "runners/parameters"}
    for policy in ("chasers", "runners"):
        name = f"{policy}/eval/return"
        scores = [record[name] for record in records_of(run) if name in record]
        assert len(scores) > 2
        assert metadata["policies"][policy]["score"] in scores
        evaluated = run.status.policies[policy].evaluation
        assert evaluated is not None
        assert evaluated.best_return == max(scores)
    assert srl.evaluate(run.path, episodes=2, checkpoint="best").by_policy.keys() == {"chasers", "runners"}
    with pytest.raises(ValueError, match=f"`srl eval {run.path.name}` lets these play against each other"):
        srl.league(run.path)


def test_a_role_has_its_own_horizon_algorithm_and_options() -> None:
    roles = ("chaser_*=chasers,horizon=8,gamma=0.5,hidden_sizes=[16,16]", "runner_*=runners,algo=a2c")
    found = experiment(roles=roles, horizon=32)
    trainers = {group.config.policy: group.config for group in found.groups if group.name.startswith("trainers")}
    assert trainers["chasers"].samples.spec.horizon == 8
    assert (trainers["chasers"].algorithm.gamma, trainers["chasers"].algorithm.hidden_sizes) == (0.5, (16, 16))
    assert isinstance(trainers["runners"].algorithm, srl.A2CConfig)
    assert trainers["runners"].samples.spec.horizon == 32


def test_a_role_can_have_a_user_defined_algorithm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    roles = ("chaser_*=chasers", "runner_*=runners,hidden_size=7,algo=examples/own_algorithm.py:A2CConfig")
    prepared = prepare(GAME, make_options(**QUICK, roles=roles), frozenset(QUICK))
    monkeypatch.chdir(tmp_path)  # a run can be resumed from any directory
    (_, runners) = role_options(lanes_config(GAME).build(1).spec, prepared.options)
    algorithm: Any = runners.algorithm
    assert (type(algorithm).__name__, algorithm.hidden_size) == ("A2CConfig", 7)
    assert "gae_lambda" in dir(runners.algorithm)
    assert not isinstance(runners.algorithm, srl.A2CConfig)


@pytest.mark.parametrize("inference", ["inline", "host"])
def test_a_frozen_policy_plays_and_does_not_change(first: srl.Run, inference: str, tmp_path: Path) -> None:
    frozen = trained(
        tmp_path, "second", ("chaser_*=chasers", f"runner_*=runners,frozen={first.path}"), inference=inference
    )
    before, after = (
        checkpoints.read(checkpoints.checkpoints(run.path / "checkpoints")[-1])[0] for run in (first, frozen)
    )
    assert after["runners/parameters"].tobytes() == before["runners/parameters"].tobytes()
    assert after["chasers/parameters"].tobytes() != before["chasers/parameters"].tobytes()
    assert frozen.status.steps >= 60, "all steps belong to the policy that learns"
    assert srl.evaluate(frozen.path, episodes=2).by_policy.keys() == {"chasers", "runners"}


def test_a_run_with_a_frozen_recurrent_policy_can_be_resumed(tmp_path: Path) -> None:
    memory = {"ippo": {"epochs": 1, "memory": "gru", "memory_size": 4}}
    first = trained(tmp_path, "first", ("chaser_*=chasers", "runner_*=runners"), **memory)
    roles = ("chaser_*=chasers", f"runner_*=runners,frozen={first.path}")
    second = trained(tmp_path, "second", roles, **memory)
    again = srl.resume(second.path, steps=160)
    assert again.status.steps >= 160


def test_team_rewards_are_the_mean_over_the_agents_of_a_policy() -> None:
    options = make_options(roles=("chaser_*=chasers", "runner_*=runners"), team_reward=True)
    shared, plain = prepare(GAME, options, ()).environment.build(3), lanes_config(GAME).build(3)
    shared.reset(5), plain.reset(5)
    actions = tuple(np.zeros(plain.spec.num_lanes(team), np.int64) for team in range(3))
    for _ in range(3):
        ours, theirs = shared.step(actions), plain.step(actions)
        chasers = np.stack([theirs[0].reward, theirs[1].reward])
        np.testing.assert_allclose(ours[0].reward, chasers.mean(0))
        np.testing.assert_allclose(ours[1].reward, chasers.mean(0))
        np.testing.assert_allclose(ours[2].reward, theirs[2].reward)
    shared.close(), plain.close()


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (("chaser_*=a", "runner_*=b", "hunter_*=c"), "role 'hunter_\\*' matches no agent\\. Agents: chaser_0"),
        (("chaser_*=a", "*=b"), "agent 'chaser_0' matches the roles 'chaser_\\*', '\\*'"),
        (("chaser_*=a",), "agent 'runner_0' matches no role"),
        (("*=all",), "'chaser_0' and 'runner_0' share role '\\*' but not their spaces"),
        (("chaser_*=a,gama=0.9", "runner_*=b"), "role chaser_\\*=a: ppo has no option 'gama'; did you mean 'gamma'"),
        (("chaser_*=a,frozn=x", "runner_*=b"), "role chaser_\\*=a: no setting 'frozn'; did you mean 'frozen'"),
        (("chaser_*=a,gamma=9", "runner_*=b"), "role chaser_\\*=a: gamma must be in"),
        (("chaser_*=a,horizon=0", "runner_*=b"), "role chaser_\\*=a: horizon must be"),
        (("chaser_*=a,algo=pop", "runner_*=b"), "role chaser_\\*=a: unknown algorithm 'pop'"),
        (("chaser_*=a,algo=/no/where.py:Mine", "runner_*=b"), "role chaser_\\*=a: .*/no/where.py"),
        (("chaser_*=a,frozen=/no/run", "runner_*=b"), "role chaser_\\*=a: .*/no/run"),
        (("chaser_*", "runner_*=b"), "a role is written PATTERN=POLICY"),
    ],
)
def test_invalid_roles_are_refused_with_the_agent_and_the_role(
    roles: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", GAME, "--roles", *roles]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_frozen_policy_with_other_spaces_is_refused(first: srl.Run, tmp_path: Path) -> None:
    roles = ("chaser_*=chasers", f"runner_0=chasers2,frozen={first.path}")
    with pytest.raises(ValueError, match="has no policy 'chasers2'; did you mean 'chasers'"):
        trained(tmp_path, "second", roles)
    roles = ("runner_0=runners", f"chaser_*=all,frozen={first.path}")
    with pytest.raises(ValueError, match="chasers, runners"):
        trained(tmp_path, "third", roles)


def test_roles_are_stored_in_the_config_of_the_run(tmp_path: Path) -> None:
    run = trained(tmp_path, "run", ("chaser_*=chasers,gamma=0.9", "runner_*=runners"))
    options = from_data(json.loads((run.path / "config.json").read_text())["options"])
    assert options.agents.roles == ("chaser_*=chasers,gamma=0.9", "runner_*=runners")
