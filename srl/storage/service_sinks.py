"""The sinks of a run by name. Metric services (W&B and MLflow) are imported only when used."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from srl.api.status import MetricSink
from srl.base.errors import nearest
from srl.base.files import Losses
from srl.base.object_names import load_object
from srl.storage.curves import flat_options
from srl.storage.metric_rows import RowReader
from srl.storage.metric_sinks import CLOSE_SECONDS, SinkThread, TensorboardSink
from srl.storage.run_directory import RunDirectory

EXTRAS = {"wandb": "wandb", "mlflow": "mlflow"}  # name of a sink -> package that it needs
NAMES = ("tensorboard", *EXTRAS)
BATCH = 100  # largest number of parameters in a request to MLflow
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
            raise ImportError(f'the sink {name} needs the package {EXTRAS[name]}; pip install "srl-rl[{name}]"')


class Sinks:
    """The sinks of a run, each fed by its own thread from metrics.jsonl and system.jsonl."""

    def __init__(
        self,
        run: RunDirectory,
        names: Sequence[str],
        losses: Losses | None = None,
        warn: Callable[[str], object] = print,
    ) -> None:
        """Make the user's own sinks now, so that their errors end the command, and all others in their threads."""
        makers = {name: _maker(run, name, losses) for name in names}
        # A resumed run continues its files, whose rows so far the sinks have.
        ends = {path: path.stat().st_size if path.exists() else 0 for path in (run.metrics, run.system)}
        self._threads: list[SinkThread] = []
        for name, make in makers.items():
            readers = [RowReader(path, end) for path, end in ends.items()]
            self._threads.append(SinkThread(name, make, readers, warn, HINTS.get(name, "")))

    def close(self, seconds: float = CLOSE_SECONDS) -> dict[str, int]:
        """Give the sinks some time for the rows that they lack. Return the number of rows that each of them lost."""
        for thread in self._threads:
            thread.finish(seconds)
        lost = {thread.name: thread.close() for thread in self._threads}
        self._threads = []
        return {name: count for name, count in lost.items() if count}


def _maker(run: RunDirectory, name: str, losses: Losses | None) -> Callable[[], MetricSink]:
    if name == "tensorboard":
        return lambda: TensorboardSink(run.tensorboard, losses, flat_options(run.read_raw_config()), run.read_machine())
    if name in EXTRAS:
        return lambda: WandbSink(run) if name == "wandb" else MlflowSink(run)
    try:
        made: MetricSink = load_object(name)(run.path)
    except Exception as error:
        raise ValueError(f"the sink {name} could not be made:\n{traceback.format_exc()}") from error
    if missing := [method for method in ("write", "close") if not callable(getattr(made, method, None))]:
        raise ValueError(f"the sink {name} made {made!r}, which has no method {' and '.join(missing)}")
    return lambda: made


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
            config={**flat_options(run.read_raw_config()), "system": run.read_machine()},
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
        self._id = known or self._create(run, config)
        if known is not None:
            self._client.update_run(known, status="RUNNING")
        _save_id(run, "mlflow", self._id)

    def _create(self, run: RunDirectory, config: Mapping[str, Any]) -> str:
        from mlflow.entities import Param

        title = os.environ.get("MLFLOW_EXPERIMENT_NAME", str(config["environment"]))
        found = self._client.get_experiment_by_name(title)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(title)
        created = self._client.create_run(experiment, run_name=run.name)
        system = {f"system.{name}": value for name, value in run.read_machine().items()}
        options = {**flat_options(config), **system}
        parameters = [Param(name, json.dumps(value)[:500]) for name, value in options.items()]
        for first in range(0, len(parameters), BATCH):
            self._client.log_batch(created.info.run_id, params=parameters[first : first + BATCH])
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
