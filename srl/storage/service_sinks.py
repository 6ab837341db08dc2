"""Sinks for metric services (W&B and MLflow), which are imported only when used. Each sink has its own thread."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from srl.api.status import MetricSink
from srl.base.errors import nearest
from srl.base.object_names import load_object
from srl.storage.curves import flat_options
from srl.storage.metric_sinks import JsonLinesSink, MetricSinks, NamedSink, TensorboardSink
from srl.storage.run_directory import RunDirectory

CLOSE_SECONDS = 20.0
PENDING = 1000
EXTRAS = {"wandb": "wandb", "mlflow": "mlflow"}  # name of a sink -> package that it needs
NAMES = ("tensorboard", *EXTRAS)
HINTS = {
    "wandb": "`wandb login`, or WANDB_MODE=offline to store metrics in the run's directory",
    "mlflow": "set MLFLOW_TRACKING_URI to the address of a server",
}
"""Name of a sink -> what to do if the service cannot be reached."""


def check_sinks(names: Sequence[str]) -> None:
    """Raise an error for a sink that cannot work, before the run starts."""
    for name in names:
        if ":" in name:
            load_object(name)
        elif name not in NAMES:
            raise ValueError(
                f"no sink {name!r} (name your own as package.module:function or path/file.py:function)"
                f"{nearest(name, NAMES)}"
            )
        elif name in EXTRAS and importlib.util.find_spec(EXTRAS[name]) is None:
            raise ImportError(f'the sink {name} needs the package {EXTRAS[name]}; pip install "srl[{name}]"')


def sinks_of(run: RunDirectory, names: Sequence[str] = ("tensorboard",), **options: Any) -> MetricSinks:
    """Return the named sinks and the one for metrics.jsonl, which every run has."""
    kinds: dict[str, Callable[[RunDirectory], MetricSink]] = {"wandb": WandbSink, "mlflow": MlflowSink}
    sinks: list[NamedSink] = [JsonLinesSink(run.metrics)]
    for name in names:
        if name == "tensorboard":
            sinks.append(TensorboardSink(run.tensorboard))
        else:
            kind = kinds[name] if name in kinds else load_object(name)
            sinks.append(BackgroundSink(partial(kind, run), name, HINTS.get(name, "")))
    return MetricSinks(sinks, **options)


class BackgroundSink:
    """Runs a slow sink in a thread, so that an unresponsive server does not block supervision.

    The thread creates the sink at the first record. When the queue is full, the oldest record is dropped. Errors in the
    sink are raised by the next `write`.
    """

    def __init__(
        self, make: Callable[[], MetricSink], name: str, hint: str = "", close_seconds: float = CLOSE_SECONDS
    ) -> None:
        self.name, self.hint = name, hint
        self._make = make
        self._close_seconds = close_seconds
        self._pending: queue.Queue[tuple[int, dict[str, float], float] | None] = queue.Queue(PENDING)
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
            self._thread.start()
        if self._pending.full():
            self._pending.get_nowait()
        self._pending.put_nowait((step, dict(metrics), wall))
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Write the queued records, waiting at most `close_seconds`."""
        if self._thread is None:
            return
        if self._pending.full():
            self._pending.get_nowait()
        self._pending.put_nowait(None)
        self._thread.join(self._close_seconds)
        if self._thread.is_alive():
            raise TimeoutError(f"it did not accept the last metrics within {self._close_seconds:.0f} s")
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        sink: MetricSink | None = None
        while (record := self._pending.get()) is not None:
            try:
                sink = self._make() if sink is None else sink
                sink.write(*record)
            except Exception as error:  # raised by the next write: the run continues
                self._error = error
        try:
            if sink is not None:
                sink.close()
        except Exception as error:
            self._error = error


class WandbSink:
    """A W&B run. W&B's own variables set project, entity, group and mode (WANDB_PROJECT, WANDB_MODE=offline)."""

    def __init__(self, run: RunDirectory) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "srl"),
            name=os.environ.get("WANDB_NAME", run.name),
            dir=str(run.path),
            id=_saved_id(run, "wandb"),
            resume="allow",
            config=run.read_raw_config(),
            settings=wandb.Settings(silent=True, console="off"),
        )
        _save_id(run, "wandb", str(self._run.id))
        # An evaluation belongs to an earlier step than the newest record: W&B's own counter would reject it.
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        self._run.log({**metrics, "step": step, "_timestamp": wall})

    def close(self) -> None:
        self._run.finish()


class MlflowSink:
    """An MLflow run in an experiment named after the environment. MLflow's own variables set the server and the
    experiment (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME)."""

    def __init__(self, run: RunDirectory) -> None:
        from mlflow import MlflowClient

        self._client = MlflowClient()
        config = run.read_raw_config()
        known = _saved_id(run, "mlflow")
        self._id = known or self._create(run.name, config)
        if known is not None:
            self._client.update_run(known, status="RUNNING")
        _save_id(run, "mlflow", self._id)

    def _create(self, name: str, config: Mapping[str, Any]) -> str:
        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", str(config["environment"]))
        found = self._client.get_experiment_by_name(title)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(title)
        created = self._client.create_run(experiment, run_name=name)
        for option, value in flat_options(config).items():
            self._client.log_param(created.info.run_id, option, json.dumps(value)[:500])
        return str(created.info.run_id)

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        from mlflow.entities import Metric

        values = [
            Metric(name, float(value), int(wall * 1000), step)
            for name, value in metrics.items()
            if math.isfinite(value)
        ]
        self._client.log_batch(self._id, metrics=values)

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _saved_id(run: RunDirectory, service: str) -> str | None:
    """Return the service's id for this run, so that a resumed run continues under it."""
    path = run.path / f"{service}.id"
    return path.read_text().strip() if path.is_file() else None


def _save_id(run: RunDirectory, service: str, identifier: str) -> None:
    (run.path / f"{service}.id").write_text(f"{identifier}\n")
