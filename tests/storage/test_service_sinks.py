"""Sinks for services never block a run, be they slow, broken or absent; the real libraries are tested offline."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from srl.storage.run_directory import RunDirectory, create
from srl.storage.service_sinks import BackgroundSink, check_sinks, sinks_of


class Listing:
    """A sink as a user may write it."""

    def __init__(self, run: RunDirectory) -> None:
        self._file = run.path / "own.txt"

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        with open(self._file, "a") as file:
            file.write(f"{step} {sorted(metrics)}\n")

    def close(self) -> None:
        with open(self._file, "a") as file:
            file.write("closed\n")


def test_a_users_sink_is_given_by_its_path_and_name(tmp_path: Path) -> None:
    run = create(tmp_path, "run")
    name = f"{__file__}:Listing"
    check_sinks((name,))
    sinks = sinks_of(run, (name,))
    sinks.write(1, {"loss": 0.5})
    sinks.write(2, {"loss": 0.5})
    sinks.close()
    assert (run.path / "own.txt").read_text() == "1 ['loss']\n2 ['loss']\nclosed\n"
    assert len(run.metrics.read_text().splitlines()) == 2
    assert not list(run.tensorboard.iterdir())


class Slow:
    def __init__(self) -> None:
        self.go = threading.Event()
        self.steps: list[int] = []

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        self.go.wait(30)
        self.steps.append(step)

    def close(self) -> None: ...


def test_a_service_that_does_not_respond_loses_metrics_but_takes_no_time() -> None:
    slow = Slow()
    sink = BackgroundSink(lambda: slow, "slow", close_seconds=0.01)
    for step in range(5000):
        sink.write(step, {}, 0.0)
    with pytest.raises(TimeoutError, match="did not accept the last metrics"):
        sink.close()
    slow.go.set()
    sink = BackgroundSink(lambda: slow, "slow")
    sink.write(9, {}, 0.0)
    sink.close()
    assert slow.steps[-1] == 9


def test_a_later_write_raises_an_error_of_the_thread() -> None:
    def broken() -> Slow:
        raise ConnectionError("no server")

    sink = BackgroundSink(broken, "broken")
    sink.write(1, {}, 0.0)
    with pytest.raises(ConnectionError, match="no server"):
        sink.close()


def test_the_warning_about_a_service_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: RunDirectory) -> Slow:
        raise PermissionError("no key")

    monkeypatch.setattr("srl.storage.service_sinks.WandbSink", refuse)
    warnings: list[str] = []
    sinks = sinks_of(create(tmp_path, "run"), ("wandb",), warn=warnings.append)
    sinks.write(1, {})
    sinks.close()
    assert len(warnings) == 1
    assert "wandb cannot write (no key" in warnings[0]
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
    with pytest.raises(ImportError, match=r'pip install "srl\[wandb\]"'):
        check_sinks(("tensorboard", "wandb"))


PROGRAM = """
import pathlib, sys
from srl.storage.run_directory import RunDirectory, create
from srl.storage.service_sinks import sinks_of
root, name = pathlib.Path(sys.argv[1]), sys.argv[2]
run = RunDirectory(root / "run") if (root / "run").exists() else create(root, "run")
run.write_config({"environment": "CartPole-v1", "options": {"type": "x", "fields": {"seed": 1}}})
sinks = sinks_of(run, (name,), warn=lambda text: sys.exit(text))
sinks.write(10, {"episodes/return_mean": 1.5, "nan": float("nan")})
sinks.write(5, {"eval/return_mean": 2.5})
sinks.close()
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
    (metric,) = (tmp_path / "store").glob("*/*/metrics/eval/return_mean")
    assert [line.split()[1:] for line in metric.read_text().splitlines()] == [["2.5", "5"]] * 2
    assert not list((tmp_path / "store").glob("*/*/metrics/nan"))


@pytest.mark.slow
def test_wandb_stores_the_metrics_of_a_run_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    use(tmp_path, "wandb", WANDB_MODE="offline")
    runs = [path.name for path in (tmp_path / "run" / "wandb").glob("offline-run-*")]
    identity = (tmp_path / "run" / "wandb.id").read_text().strip()
    assert runs
    assert all(name.endswith(identity) for name in runs)
