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
from srl.experiments.session.goals import Goals, NamedStatistics, goal_of
from srl.storage.checkpoints import kept_best
from srl.terminal.report import final_report


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


def test_a_name_that_no_episode_has_is_reported_once_after_a_hundred_episodes_or_at_the_end() -> None:
    options = srl.TrainOptions().replace(until=("retrun>=3", "length<=20"), best="-lenght", log_info=("height", "cost"))
    episodes = {"return": 2.0, "length": 5.0, "height": 1.0}

    def named() -> NamedStatistics:
        return NamedStatistics(options, Goals(options.run.until, None, ["policy"]), ["policy"])

    one = named()
    assert one.unknown({"policy": gauges(99, **episodes)}) == []
    later = {"policy": gauges(100, **episodes)}
    texts = one.unknown(later)
    assert texts == [
        "--until retrun>=3: no episode has reported 'retrun'; did you mean 'return'?",
        "--best -lenght: no episode has reported 'lenght', so no checkpoint is the best; did you mean 'length'?",
        "--log-info cost: no episode has reported 'cost' as a number in its last info; valid ones: height, length, "
        "return",
    ]
    assert one.unknown(later, ended=True) == []
    assert named().unknown({"policy": gauges(1, **episodes)}, ended=True) == texts
    assert named().unknown({"policy": PolicyGauges()}, ended=True) == []


def test_a_misspelled_statistic_is_reported_and_the_report_and_eval_name_no_best_checkpoint(tmp_path: Path) -> None:
    run = srl.train(
        "support.informative:Informative", root=tmp_path, best="nosuch", log_info=("text",), steps=128,
        scheduler="inline", lanes=4, horizon=16, recipe="none", eval_every=64, eval_episodes=2, sinks=(),
        ppo={"epochs": 1, "num_minibatches": 1},
    )  # fmt: skip
    text = (run.path / "system.jsonl").read_text()
    assert "--best nosuch: no episode has reported 'nosuch', so no checkpoint is the best" in text
    assert "--log-info text: no episode has reported 'text' as a number" in text
    assert run.status.evaluation is not None
    assert run.status.evaluation.count > 1
    assert "best" not in final_report(run.status).plain
    with pytest.raises(ValueError, match="has no best checkpoint"):
        srl.evaluate(run.path, episodes=1, checkpoint="best")


def test_a_resumed_run_with_another_statistic_starts_the_best_over(tmp_path: Path) -> None:
    options: dict[str, Any] = {"scheduler": "inline", "lanes": 4, "horizon": 16, "recipe": "none", "sinks": ()}
    options |= {"eval_every": 64, "eval_episodes": 2, "ppo": {"epochs": 1, "num_minibatches": 1}}
    run = srl.train("support.informative:Informative", root=tmp_path, steps=128, **options)
    assert kept_best(run.path / "checkpoints")["policy"][:2] == ("return", 3.0)
    srl.resume(run.path, steps=256, best="is_success")
    by, score, step = kept_best(run.path / "checkpoints")["policy"]
    assert (by, step > 128) == ("is_success", True)
    assert score <= 1.0


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
