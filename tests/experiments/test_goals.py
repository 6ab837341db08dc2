"""Goals end a run early: by return or by what the environment reports, for each policy by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.api.block import Episodes
from srl.api.status import EvaluationStatus
from srl.controller.policy_gauges import PolicyGauges
from srl.experiments.session.goals import Goals, goal_of


def gauges(count: int, **means: float) -> PolicyGauges:
    one = PolicyGauges()
    one.episodes.add([Episodes.of({name: np.full(count, mean) for name, mean in means.items()})])
    return one


def test_all_goals_must_be_reached_over_a_hundred_new_episodes() -> None:
    goals = Goals(["is_success >= 0.875", "length<=20"], 1.0, ["policy"])
    means = {"return": 2.0, "length": 20.0, "is_success": 0.875}
    assert goals.reached({"policy": gauges(99, **means)}) == ""
    reason = goals.reached({"policy": gauges(100, **means)})
    assert reason.startswith("mean is_success 0.875 reached the goal of 0.875, mean length 20.0 ")
    assert goals.reached({"policy": gauges(100, **means | {"length": 20.5})}) == ""
    assert goals.reached({"policy": gauges(100, length=1.0)}) == ""
    goals.episodes_before = {"policy": 1}
    assert goals.reached({"policy": gauges(100, **means)}) == ""


def test_a_goal_for_a_statistic_that_no_episode_has_is_named_once() -> None:
    goals = Goals(["retrun>=3", "length<=20"], None, ["policy"])
    assert goals.unknown({"policy": gauges(99, **{"return": 2.0}, length=5.0)}) == ""
    later = {"policy": gauges(100, **{"return": 2.0}, length=5.0)}
    assert goals.unknown(later) == "--until retrun>=3: no episode reports 'retrun' so far; did you mean 'return'?"
    assert goals.unknown(later) == ""


def test_goals_of_several_policies_name_one() -> None:
    names = ["hiders", "seekers"]
    goal = goal_of("hiders/return>=-3e1", names)
    assert (goal.policy, goal.name, goal.sign, goal.bound) == ("hiders", "return", ">=", -30.0)
    with pytest.raises(ValueError, match=r"several policies learn.*--until 'hiders/return>=3'"):
        goal_of("return>=3", names)
    with pytest.raises(ValueError, match="names no policy that learns; did you mean 'hiders'"):
        goal_of("hider/return>=3", names)


@pytest.mark.parametrize("text", ["return", "return>3", "return>=x", ">=3", "return>==3"])
def test_a_goal_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected NAME>=VALUE"):
        srl.TrainOptions().replace(until=(text,))


def test_names_of_the_record_are_refused() -> None:
    with pytest.raises(ValueError, match="'update' has another meaning"):
        srl.TrainOptions().replace(log_info=("update",))


def test_less_may_be_better() -> None:
    status = EvaluationStatus(1, 64, 1, 2, 10.0, None, 5.0, 10.0, 64, facts={"cost": 3.0})
    assert [status.score(name) for name in ("return", "cost", "-cost", "-length", "other")] == [10, 3, -3, -5, None]


def test_a_statistic_of_the_environment_ends_the_run_and_chooses_the_best_checkpoint(tmp_path: Path) -> None:
    options: dict[str, Any] = {"scheduler": "inline", "lanes": 4, "horizon": 16, "batch": 64, "recipe": "none"}
    evaluation: dict[str, Any] = {"eval_every": 64, "eval_episodes": 2, "eval_share": 1.0, "best": "-height"}
    run = srl.train(
        "support.informative:Informative",
        root=tmp_path,
        until=("is_success>=0.4",),
        log_info=("height",),
        sinks=(),
        ppo={"epochs": 1, "num_minibatches": 1},
        **options,
        **evaluation,
    )
    assert run.reason.startswith("mean is_success 0.")
    assert run.status.facts.keys() == {"is_success", "height"}
    metrics, episodes = run.metrics(), run.episodes()
    assert np.nanmax(metrics["height"]) > 10
    assert len(set(episodes["seed"].tolist())) == 4
    assert np.nanmean(metrics["eval/height"]) >= 0
    assert (run.path / "checkpoints" / "best").is_dir()
