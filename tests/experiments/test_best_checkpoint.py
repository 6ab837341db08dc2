"""Background evaluation, from the option to the best parameters on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from support.trained_runs import latest_checkpoint

import srl
from srl.api.status import EvaluationStatus
from srl.base.files import Losses
from srl.experiments.session.best_checkpoint import BestCheckpoint
from srl.experiments.session.checkpointing import BackgroundWriter
from srl.experiments.session.run_record import RunRecord
from srl.storage import checkpoints
from srl.storage.run_directory import create
from srl.terminal.report import final_report
from srl.workers.evaluator import EVALUATED

OPTIONS: dict[str, Any] = {"steps": 3000, "scheduler": "inline", "lanes": 8, "horizon": 16, "seed": 3}


def test_the_best_parameters_are_kept_and_training_is_unchanged(tmp_path: Path) -> None:
    plain = srl.train("CartPole-v1", root=tmp_path, name="plain", **OPTIONS)
    run = srl.train(
        "CartPole-v1", root=tmp_path, name="run", eval_every=500, eval_episodes=4, eval_share=1.0, **OPTIONS
    )
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    evaluated = [record for record in records if "eval/return" in record]
    assert len(evaluated) == run.status.evaluation.count >= 3  # type: ignore[union-attr]
    steps = [record["step"] for record in evaluated]
    assert steps == sorted(steps)
    assert run.status.evaluation is not None
    best = max(evaluated, key=lambda record: record["eval/return"])
    assert run.status.evaluation.best_return == best["eval/return"]
    path = checkpoints.latest(run.path / "checkpoints" / "best")
    assert path is not None
    arrays, facts = checkpoints.read(path)
    # The best of those whose parameters were still there when the evaluation was read.
    assert (facts["score"], checkpoints.step_of(path)) in [(one["eval/return"], one["step"]) for one in evaluated]
    assert list(arrays) == ["policy/parameters"]
    result = srl.evaluate(run.path, episodes=2, checkpoint="best")
    assert result.checkpoint == path
    last = [latest_checkpoint(r.path)[0] for r in (plain, run)]
    assert np.array_equal(last[0]["policy/parameters"], last[1]["policy/parameters"])
    resumed = srl.resume(run.path, steps=4000)
    assert checkpoints.read(checkpoints.latest(path.parent))[1]["score"] >= facts["score"]  # type: ignore[arg-type]
    assert resumed.state == "finished"


def test_inline_runs_evaluate_the_same_versions_with_the_same_results_also_if_resumed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"root": tmp_path, "scheduler": "inline", "lanes": 4, "horizon": 16, "recipe": "none"}
    algorithm = {"epochs": 1, "num_minibatches": 1, "learning_rate_schedule": "constant"}
    options |= {"eval_every": 128, "eval_episodes": 2, "sinks": (), "ppo": algorithm}

    def evaluations(run: srl.Run) -> dict[int, float]:
        rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
        return {row["eval/version"]: row["eval/return"] for row in rows if row["kind"] == "evaluation"}

    whole = srl.train("CartPole-v1", steps=640, name="whole", **options)
    half = srl.train("CartPole-v1", steps=320, name="half", **options)
    assert list(evaluations(whole)) == list(range(0, whole.status.version + 1, 2))
    assert evaluations(srl.resume(half.path, steps=640)) == evaluations(whole)


def test_evaluation_works_although_no_episode_ends(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "steps": 64,
        "lanes": 2,
        "horizon": 8,
        "recipe": "none",
        "scheduler": "inline",
        "sinks": (),
    }
    evaluation: dict[str, Any] = {"eval_every": 16, "eval_episodes": 2, "eval_share": 1.0, "eval_max_steps": 3}
    env = "srl.testing.environments:Tracer"
    run = srl.train(env, env_args={"length": 10**6}, root=tmp_path, **sizes, **evaluation)
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    found = {
        (one["eval/truncated"], one["eval/episodes"], one["eval/length"]) for one in records if "eval/truncated" in one
    }
    assert found == {(2.0, 2.0, 3.0)}
    assert run.status.evaluation is not None
    assert run.status.evaluation.truncated == 2
    assert "2 of 2 episodes were truncated at --eval-max-steps" in final_report(run.status).plain


class Overtaken:
    """A store whose tag has moved to the next evaluation before the parameters of the last one were read."""

    def versions(self) -> dict[str, int]:
        return {EVALUATED: 1}

    def pull(self, tag: str) -> tuple[int, np.ndarray]:
        return 2, np.zeros(3, np.float32)


def test_only_parameters_of_the_evaluated_version_are_kept(tmp_path: Path) -> None:
    run = create(tmp_path, "run")
    writer = BackgroundWriter(threaded=False)
    best = BestCheckpoint(
        run, {}, {"policy": cast(Any, Overtaken())}, RunRecord(run, Losses()), print, writer, lambda: None
    )
    status = EvaluationStatus(1, 64, 1, 2, 10.0, None, 5.0, 10.0, 64)
    best.add([("policy", status)], 1.0)
    assert checkpoints.latest(run.checkpoints / checkpoints.BEST) is None
    best.add([("policy", msgspec.structs.replace(status, version=2))], 1.0)
    assert checkpoints.latest(run.checkpoints / checkpoints.BEST) is not None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"eval_every": -1}, "eval_every must be 0"),
        ({"eval_episodes": 0}, "eval_episodes must be at least 1"),
        ({"eval_max_steps": 0}, "eval_max_steps must be at least 1"),
        ({"eval_share": 1.5}, "eval_share must be in"),
    ],
)
def test_invalid_evaluation_options_are_refused(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        srl.train("CartPole-v1", root=tmp_path, **options)
