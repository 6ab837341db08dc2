"""Sizes of a run: those it chose when it is resumed, and batches that do not fit its other options."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support import PURSUIT

from srl.api.dataflow import Replay, Sequences
from srl.api.status import PolicyStatus, RunStatus
from srl.cli.main import main
from srl.experiments.graph.preparation import prepare
from srl.experiments.graph.sizes import ShortEpisodes, describe_slow_steps, with_sizes
from srl.experiments.options.keywords import make_options, merged
from srl.experiments.options.train_options import TrainOptions

BEFORE = make_options(lanes=16)
SIZES = {"actors": 7, "lanes": 16, "ring": 2, "horizon": 32, "batch": 7168}


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, SIZES),
        ({"steps": 5}, SIZES),
        ({"actors": 4}, {**SIZES, "actors": 4}),
        ({"actors": None}, {**SIZES, "actors": None}),  # to be chosen for this machine
        ({"scheduler": "hosts"}, {**SIZES, "actors": None}),
        ({"scheduler": "processes"}, SIZES),  # which it was already
        ({"lanes": 8}, {**SIZES, "lanes": 8, "batch": None}),
        ({"trainers": 2}, {**SIZES, "batch": None}),
        ({"trainers": 2, "batch": 512}, {**SIZES, "batch": 512}),
    ],
    ids=str,
)
def test_sizes_stay_unless_the_user_changes_options_they_depend_on(
    given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    options = with_sizes(BEFORE.replace(**given), SIZES, BEFORE, given)
    assert {name: options.value(name) for name in SIZES} == wanted


def test_a_run_without_saved_sizes_chooses_them() -> None:
    assert with_sizes(BEFORE, {}, BEFORE) == BEFORE


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--lanes 8 --horizon 4 --algo.num-minibatches 33", "at most 32, the decisions of a batch; found 33"),
        ("--lanes 8 --batch 64 --horizon 4 --trainers 2 --num-minibatches 40", "32, the decisions of a batch for each"),
        ("--lanes 8 --horizon 4 --algo.num-minibatches 32", ""),
        ("--lanes 2 --horizon 4", ""),  # the default is 16
    ],
)
def test_more_minibatches_than_decisions_are_refused(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["train", "CartPole-v1", "--actors", "1", "--inference", "inline", *words.split(), "--print-config"])
    assert code == (2 if text else 0)
    assert text in capsys.readouterr().err


def summary(env: str, **keywords: Any) -> str:
    return prepare(env, *merged(TrainOptions(), {"scheduler": "inline", **keywords})).summary


def test_sequences_longer_than_episodes_get_a_hint() -> None:
    wanted = "hint: sequences of 5,040 steps are longer than episodes, which have at most 500: .*--algo.chunk 460 fits"
    assert re.search(wanted, summary("CartPole-v1", algo="r2d2", recipe="none", r2d2={"chunk": 5000}))
    assert "hint" not in summary("CartPole-v1", algo="r2d2", recipe="none", r2d2={"chunk": 460})
    limited = {"env_args": {"max_episode_steps": 60}, "algo": "r2d2", "recipe": "none"}
    assert "at most 60: " in summary("CartPole-v1", **limited)
    assert "at most 60: " in summary("CartPole-v1", **limited, previous_step=True)
    repeated = {**limited, "env_args": {"max_episode_steps": 200}, "action_repeat": 2}
    assert "at most 100: " in summary("MountainCar-v0", **repeated)
    assert "hint" not in summary("CartPole-v1", algo="dqn"), "transitions are no sequences"


def test_sequences_that_hold_many_episodes_are_reported_once() -> None:
    prepared = prepare("CartPole-v1", *merged(TrainOptions(), {"algo": "r2d2", "scheduler": "inline"}))
    short = ShortEpisodes(prepared.experiment)

    def found(episodes: int, length: float) -> str:
        policies = {"policy": PolicyStatus(episodes=episodes, length_mean=length)}
        return short.found(RunStatus("r", "CartPole-v1", "r2d2", "/r", policies=policies))

    flow = prepared.options.algorithm.dataflow()
    assert isinstance(flow, Replay)
    assert isinstance(flow.unit, Sequences)
    rows = flow.unit.rows
    assert found(99, 2.0) == found(100, rows / 9) == ""
    assert f"sequences of {rows} steps hold many episodes, which have 2 steps on average" in found(100, 2.0)
    assert found(100, 2.0) == ""


def test_a_run_that_is_shorter_than_one_update_gets_a_hint() -> None:
    assert "hint" not in summary("CartPole-v1", lanes=8, horizon=4, steps=32)
    wanted = "hint: one update is 32 decisions, more than --steps 31, so the run will be longer; set a smaller --lanes"
    assert wanted in summary("CartPole-v1", lanes=8, horizon=4, steps=31)
    roles = ("chaser_*=chasers", "runner_*=runners")
    shared = summary(PURSUIT, lanes=2, horizon=4, steps=20, algo="ippo", roles=roles)
    assert "one update is 16 decisions, more than --steps 20, of which policy chasers has 14, so" in shared


def test_the_time_of_a_batch_of_slow_steps_is_estimated() -> None:
    options = make_options(recipe="none", actors=2, lanes=16, horizon=64)
    experiment = prepare("CartPole-v1", options, None).experiment
    text = describe_slow_steps(experiment, 3e6)  # two actors make half of 2 x 16 x 64 decisions each
    assert "hint: a step of the environment takes about 3 s, so a batch of 2,048 decisions takes about 51 min" in text
    one_block = prepare("CartPole-v1", options.replace(batch=1024), None).experiment
    assert "takes about 51 min" in describe_slow_steps(one_block, 3e6)
    assert describe_slow_steps(experiment, 5e3) == ""  # 5 ms, as a simulator takes
