"""Runs whose drawn batches are changed, by a transform of the algorithm or by buffer workers, through the command
line."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support import varied
from support.terminals import Terminal, worker
from support.trained_runs import latest_checkpoint

import srl
from srl.api.dataflow import BatchFunction, BatchTransform
from srl.api.experiment import Experiment
from srl.api.spaces import Space

VARIED = (f"{varied.__file__}:Varied", "--env-arg", "observation=camera")
SIZES = ("--recipe", "none", "--algo.hidden-sizes", "16", "--lanes", "2", "--horizon", "4", "--algo.body", "lean")
REPLAY = ("--algo.learning-starts", "16", "--algo.batch-size", "8", "--algo.replay-size", "500")
SMALL = (*SIZES, *REPLAY, "--algo.updates-per-decision", "0.25")


@dataclass(frozen=True)
class Negated(BatchTransform):
    """Changes the sign of rewards."""

    def build(self, observation: Space, action: Space) -> BatchFunction:
        def negate(batch: Any, random: np.random.Generator) -> Any:
            batch.reward *= -1.0
            return batch

        return negate


def with_negated(experiment: Experiment) -> Experiment:
    return srl.with_buffer_workers(experiment, "negated", Negated())


def with_negated_twice(experiment: Experiment) -> Experiment:
    return srl.with_buffer_workers(with_negated(experiment), "again", Negated())


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_images_of_drawn_batches_shift(terminal: Terminal, algo: str) -> None:
    options = ("--algo", algo, "--steps", "48", "--scheduler", "inline", "--algo.random-shift", "4")
    ended = terminal.train(*VARIED, *options, *SMALL).end()
    assert ended.code == 0, ended.text


def test_shifts_are_the_same_inside_the_trainer_and_with_a_replay_worker(tmp_path: Path) -> None:
    small: dict[str, Any] = {"hidden_sizes": (8,), "body": "lean", "learning_starts": 16, "batch_size": 8}
    small |= {"replay_size": 500, "updates_per_decision": 0.25}
    options: dict[str, Any] = {"scheduler": "inline", "recipe": "none", "lanes": 2, "horizon": 4, "max_lag": 0}
    options |= {"env_args": {"observation": "camera"}, "steps": 64, "root": tmp_path, "sinks": ()}
    found = []
    for replay, shift in (("inline", 4), ("host", 4), ("inline", 0)):
        dqn = {**small, "random_shift": shift}
        run = srl.train(VARIED[0], algo="dqn", dqn=dqn, replay=replay, name=f"{replay}{shift}", **options)
        found.append(latest_checkpoint(run.path)[0]["policy/parameters"])
    np.testing.assert_array_equal(found[0], found[1])
    assert (found[0] != found[2]).any()


def test_a_killed_buffer_worker_is_replaced(terminal: Terminal) -> None:
    options = ("--algo", "dqn", "--steps", "1000000", "--algo.random-shift", "4", "--algo.prioritized")
    where = ("--replay", "host", "--buffer-workers")
    command = terminal.train(*VARIED, *options, *where, *SMALL)
    status = command.wait_for_steps(64)
    psutil.Process(worker(status, "buffers/0")["pid"]).kill()
    after = command.wait(
        lambda now: now["restarts"] == 1 and now["steps"] > status["steps"] + 64, "steps after the end of a worker"
    )
    assert after["version"] > status["version"]
    command.signal(signal.SIGINT)
    assert command.end().code == 130


@pytest.mark.parametrize(("graph", "chosen"), [("with_negated", 0), ("with_negated_twice", 1)])
def test_the_trainer_learns_what_buffer_workers_return(terminal: Terminal, graph: str, chosen: int) -> None:
    """Action 1 pays 1, action 0 pays -1. The run is long enough for a row in system.jsonl after its first update."""
    options: tuple[str, ...] = (
        "--algo",
        "dqn",
        "--steps",
        "1600",
        "--algo.learning-starts",
        "64",
        "--scheduler",
        "inline",
    )
    options += ("--replay", "host", "--graph", f"{__file__}:{graph}", "--recipe", "none", "--algo.hidden-sizes", "16")
    ended = terminal.train("srl.testing.probe_environments:ChosenReward", *options, "--trust-code").end()
    assert ended.code == 0, ended.text
    policy = srl.load(terminal.root / "run", trust_code=True)
    assert policy.act(np.ones(1, np.float32)) == chosen
    rows = [json.loads(line) for line in (terminal.root / "run" / "system.jsonl").read_text().splitlines()]
    assert any(name.startswith("busy/negated/0/") for row in rows for name in row)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--algo.random-shift", "4"), "random_shift needs image observations"),
        (("--algo.random-shift", "4", "--algo", "sac"), "random_shift needs image observations"),
        (("--buffer-workers",), "buffer workers change what replay workers draw"),
        (("--buffer-workers", "--replay", "host"), "dqn changes nothing in drawn batches"),
        (("--graph", f"{__file__}:with_negated"), "buffer workers 'negated' need replay workers"),
    ],
)
def test_what_cannot_work_is_refused(terminal: Terminal, arguments: tuple[str, ...], message: str) -> None:
    algo = () if "--algo" in arguments else ("--algo", "dqn")
    ended = terminal.call("train", "CartPole-v1", *algo, *arguments, "--root", str(terminal.root))
    assert ended.code == 2
    assert message in ended.err, ended.err
