"""Metrics of runs for Prometheus, per worker and per stream, by its naming conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from srl.api.status import RunStatus

MAX_WORKERS = 2_000
"""Workers of a run with series of their own; of more, only the sums of their groups are exported."""


class _Runs:
    def __init__(self, runs: Callable[[], Sequence[RunStatus]]) -> None:
        self._runs = runs

    def collect(self) -> Iterable[Metric]:
        runs = self._runs()
        yield from _of_runs(runs)
        yield from _of_policies(runs)
        yield from _of_workers(runs)
        yield from _of_streams(runs)


def exposition(runs: Sequence[RunStatus]) -> tuple[bytes, str]:
    """Return the metrics of these runs as text, and its content type."""
    registry = CollectorRegistry()
    registry.register(_Runs(lambda: runs))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class MetricsServer:
    """Serves the metrics of a run at a port of the loopback interface, in threads of its own."""

    def __init__(self, port: int) -> None:
        self._status: list[RunStatus] = []
        registry = CollectorRegistry()
        registry.register(_Runs(lambda: self._status))
        try:
            self._server, self._thread = start_http_server(port, addr="127.0.0.1", registry=registry)
        except OSError as error:
            raise OSError(error.errno, f"--metrics-port {port} cannot be used: {error.strerror}") from error

    def show(self, status: RunStatus) -> None:
        self._status = [status]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _of_runs(runs: Sequence[RunStatus]) -> Iterator[Metric]:
    about = InfoMetricFamily("srl_run", "Environment, algorithm and state of a run", labels=["run"])
    for run in runs:
        values = {"environment": run.environment, "algorithm": run.algorithm, "state": run.state, "path": run.path}
        about.add_metric([run.run], values)
    yield about
    counters = {
        "srl_steps": ("Decisions that the trainers learned from", "steps"),
        "srl_decisions": ("Decisions that the actors made", "decisions"),
        "srl_updates": ("Updates of all policies that learn", "updates"),
        "srl_episodes": ("Episodes that ended", "episodes"),
        "srl_worker_restarts": ("Workers that were replaced", "restarts"),
        "srl_lane_failures": ("Copies of environments that were replaced", "lane_failures"),
        "srl_skipped_updates": ("Updates whose loss or gradient was not finite", "skipped_updates"),
    }
    for name, (text, field) in counters.items():
        counter = CounterMetricFamily(name, text, labels=["run"])
        for run in runs:
            counter.add_metric([run.run], getattr(run, field))
        yield counter
    refused = CounterMetricFamily("srl_refused_connections", "Refused connections", labels=["run", "reason"])
    lost = CounterMetricFamily("srl_lost_bytes", "Bytes that a full or broken disk kept out", labels=["run", "file"])
    for run in runs:
        for reason, number in run.refused.items():
            refused.add_metric([run.run, reason], number)
        for file, number in run.losses.items():
            lost.add_metric([run.run, file], number)
    yield from (refused, lost)
    gauges = {
        "srl_target_steps": ("Decisions after which the run ends", "target_steps"),
        "srl_elapsed_seconds": ("Time since the run began", "elapsed"),
        "srl_lag_versions": ("Mean age of samples, in versions", "lag_mean"),
        "srl_lag_max_versions": ("Highest age of samples, in versions", "lag_max"),
    }
    for name, (text, field) in gauges.items():
        gauge = GaugeMetricFamily(name, text, labels=["run"])
        for run in runs:
            gauge.add_metric([run.run], getattr(run, field))
        yield gauge


def _of_policies(runs: Sequence[RunStatus]) -> Iterator[Metric]:
    labels = ["run", "policy"]
    mean = GaugeMetricFamily("srl_episode_return", "Mean return of the last 100 episodes", labels=labels)
    length = GaugeMetricFamily("srl_episode_length", "Mean length of the last 100 episodes", labels=labels)
    evaluated = GaugeMetricFamily("srl_evaluation_return", "Mean return of the last evaluation", labels=labels)
    version = GaugeMetricFamily("srl_version", "Version of the newest parameters", labels=labels)
    value = GaugeMetricFamily("srl_metric", "Figures of the last update", labels=["run", "name"])
    for run in runs:
        for name, policy in run.policies.items():
            version.add_metric([run.run, name], policy.version)
            if policy.return_mean is not None:
                mean.add_metric([run.run, name], policy.return_mean)
            if policy.length_mean is not None:
                length.add_metric([run.run, name], policy.length_mean)
            if policy.evaluation is not None:
                evaluated.add_metric([run.run, name], policy.evaluation.return_mean)
        for name, number in run.metrics.items():
            value.add_metric([run.run, name], number)
    yield from (mean, length, evaluated, version, value)


def _of_workers(runs: Sequence[RunStatus]) -> Iterator[Metric]:
    labels = ["run", "group", "worker", "host"]
    busy = GaugeMetricFamily("srl_worker_busy_ratio", "Share of time in a phase of work", labels=[*labels, "phase"])
    cpu = GaugeMetricFamily("srl_worker_cpu_ratio", "Processors in use", labels=labels)
    memory = GaugeMetricFamily("srl_worker_resident_memory_bytes", "Resident memory", labels=labels)
    progress = CounterMetricFamily("srl_worker_progress", "Pieces of work done", labels=labels)
    workers = GaugeMetricFamily("srl_workers", "Number of workers", labels=["run", "group", "state"])
    for run in runs:
        counts: dict[tuple[str, str], int] = {}
        for worker in run.workers:
            counts[worker.group, worker.state] = counts.get((worker.group, worker.state), 0) + 1
            if len(run.workers) > MAX_WORKERS:
                continue
            own = [run.run, worker.group, worker.name, worker.host]
            for phase, share in worker.busy.items():
                busy.add_metric([*own, phase], share)
            cpu.add_metric(own, worker.cpu_percent / 100)
            memory.add_metric(own, worker.rss_mb * 1e6)
            progress.add_metric(own, worker.progress)
        for (group, state), number in counts.items():
            workers.add_metric([run.run, group, state], number)
    yield from (workers, busy, cpu, memory, progress)


def _of_streams(runs: Sequence[RunStatus]) -> Iterator[Metric]:
    labels = ["run", "stream"]
    filled = GaugeMetricFamily("srl_stream_filled_ratio", "Share of the next batch that waits", labels=labels)
    posted = CounterMetricFamily("srl_stream_posted", "Blocks or batches posted", labels=labels)
    consumed = CounterMetricFamily("srl_stream_consumed", "Blocks or batches consumed", labels=labels)
    dropped = CounterMetricFamily("srl_stream_dropped", "Blocks dropped", labels=labels)
    batch = GaugeMetricFamily("srl_stream_batch_lanes", "Mean lanes per batch of requests", labels=labels)
    size = GaugeMetricFamily("srl_replay_decisions", "Decisions in a replay memory", labels=labels)
    capacity = GaugeMetricFamily("srl_replay_capacity_decisions", "Decisions that fit", labels=labels)
    nbytes = GaugeMetricFamily("srl_replay_capacity_bytes", "Bytes of a full replay memory", labels=labels)
    ratio = GaugeMetricFamily("srl_replay_updates_per_decision", "Gradient steps per decision", labels=labels)
    text = "Gradient steps per decision, as the options say"
    wanted = GaugeMetricFamily("srl_replay_wanted_updates_per_decision", text, labels=labels)
    text = "Mean age of the last batch, in decisions collected since"
    age = GaugeMetricFamily("srl_replay_age_decisions", text, labels=labels)
    text = "Highest age of reanalyzed targets, in versions"
    target_age = GaugeMetricFamily("srl_replay_target_age", text, labels=labels)
    for run in runs:
        for stream in run.streams:
            own = [run.run, stream.name]
            posted.add_metric(own, stream.posted)
            consumed.add_metric(own, stream.consumed)
            if stream.kind == "push":
                filled.add_metric(own, stream.filled)
                dropped.add_metric(own, stream.dropped)
            else:
                batch.add_metric(own, stream.batch_mean)
        for one in run.replay:
            own = [run.run, one.name]
            size.add_metric(own, one.size)
            capacity.add_metric(own, one.capacity)
            nbytes.add_metric(own, one.num_bytes)
            wanted.add_metric(own, one.wanted)
            age.add_metric(own, one.age)
            if one.reached is not None:
                ratio.add_metric(own, one.reached)
            if one.max_target_age is not None:
                target_age.add_metric(own, one.target_age)
    yield from (filled, posted, consumed, dropped, batch, size, capacity, nbytes, ratio, wanted, age, target_age)
