"""Sinks for services never block a run, be they slow, broken or absent; the real libraries are tested offline."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from srl.storage.metric_rows import RowFile
from srl.storage.run_directory import RunDirectory, create
from srl.storage.service_sinks import Sinks, check_sinks


class Listing:
    """A sink as a user may write it."""

    def __init__(self, path: Path) -> None:
        self._file = path / "own.txt"

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        with open(self._file, "a") as file:
            file.write(f"{step} {sorted(metrics)}\n")

    def close(self) -> None:
        with open(self._file, "a") as file:
            file.write("closed\n")


def test_a_users_sink_gets_the_path_of_the_run_and_its_rows(tmp_path: Path) -> None:
    run = create(tmp_path, "run")
    name = f"{__file__}:Listing"
    check_sinks((name,))
    RowFile(run.metrics).append(0, {"loss": 0.5}, 0.0)  # before the run was resumed
    sinks = Sinks(run, (name,))
    for step in (1, 2):
        RowFile(run.metrics).append(step, {"kind": "update", "loss": 0.5}, 0.0)
    RowFile(run.system).append(2, {"train_fps": 100.0}, 0.0)
    assert sinks.close() == {}
    assert (run.path / "own.txt").read_text() == "1 ['loss']\n2 ['loss']\n2 ['train_fps']\nclosed\n"


def failing(path: Path) -> Listing:
    raise RuntimeError(f"no space for {path.name}")


def test_an_error_in_a_users_sink_ends_the_command_with_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)could not be made.*test_service_sinks.py.*in failing.*no space for run"):
        Sinks(create(tmp_path, "run"), (f"{__file__}:failing",))


def test_a_users_sink_must_have_its_methods(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"builtins:str made .*run', which has no method write and close"):
        Sinks(create(tmp_path, "run"), ("builtins:str",))


def test_the_warning_about_a_service_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: RunDirectory) -> Listing:
        raise PermissionError("no key")

    monkeypatch.setattr("srl.storage.service_sinks.WandbSink", refuse)
    warnings: list[str] = []
    run = create(tmp_path, "run")
    sinks = Sinks(run, ("wandb",), warn=warnings.append)
    RowFile(run.metrics).append(1, {"loss": 1.0}, 0.0)
    assert sinks.close() == {"wandb": 1}
    assert len(warnings) == 1
    assert "wandb cannot write metrics (no key" in warnings[0]
    assert "WANDB_MODE=offline" in warnings[0]


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("wanb", ValueError, "no sink 'wanb'.*did you mean 'wandb'"),
        ("nowhere:Sink", ValueError, "no module 'nowhere'"),
    ],
)
def test_an_unknown_sink_is_refused(name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        check_sinks((name,))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "srl-rl\[wandb\]"'):
        check_sinks(("tensorboard", "wandb"))


PROGRAM = """
import pathlib, sys
from srl.storage.run_directory import RunDirectory, create
from srl.storage.metric_rows import RowFile
from srl.storage.service_sinks import Sinks
root, name = pathlib.Path(sys.argv[1]), sys.argv[2]
run = RunDirectory(root / "run") if (root / "run").exists() else create(root, "run")
(run.path / "machine.json").write_text('{"python": "3.x"}')
run.write_config({"environment": "CartPole-v1", "options": {"type": "x", "fields": {"seed": 1}}})
sinks = Sinks(run, (name,))
RowFile(run.metrics).append(10, {"return": 1.5, "nan": float("nan")}, 0.0)
RowFile(run.metrics).append(5, {"eval/return": 2.5}, 0.0)
assert sinks.close(60.0) == {}
"""


def use(tmp_path: Path, name: str, **settings: str) -> None:
    for _ in range(2):  # the second time it is resumed
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path), name],
            check=True,
            env={**os.environ, **settings},
            timeout=100,
        )


@pytest.mark.slow
def test_mlflow_stores_the_metrics_of_a_run_and_of_its_resumption(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    store = {"MLFLOW_TRACKING_URI": f"file:{tmp_path}/store", "MLFLOW_ALLOW_FILE_STORE": "true"}
    use(tmp_path, "mlflow", **store)
    (metric,) = (tmp_path / "store").glob("*/*/metrics/eval/return")
    assert [line.split()[1:] for line in metric.read_text().splitlines()] == [["2.5", "5"]] * 2
    assert not list((tmp_path / "store").glob("*/*/metrics/nan"))
    (parameter,) = (tmp_path / "store").glob("*/*/params/seed")
    assert parameter.read_text() == "1"


@pytest.mark.slow
def test_wandb_stores_the_metrics_of_a_run_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    use(tmp_path, "wandb", WANDB_MODE="offline")
    runs = [path.name for path in (tmp_path / "run" / "wandb").glob("offline-run-*")]
    identity = (tmp_path / "run" / "wandb.id").read_text().strip()
    assert runs
    # W&B's file holds the config as entries of a name and a value in JSON, without compression.
    stored = (tmp_path / "run" / "wandb" / runs[0] / f"run-{identity}.wandb").read_bytes()
    for name, value in {"environment": '"CartPole-v1"', "seed": "1", "system": '{"python":"3.x"}'}.items():
        entry = rf"{name}.{{1,8}}{re.escape(value)}"
        assert re.search(entry.encode(), stored, re.DOTALL), name
    assert all(name.endswith(identity) for name in runs)
