"""Metrics for Prometheus: names, labels and values, read back by its own parser."""

import json
import re
import socket
from pathlib import Path
from urllib.request import urlopen

import pytest
from dashboard.conftest import status_of
from prometheus_client.parser import text_string_to_metric_families

from srl.api.status import EvaluationStatus, PolicyStatus, ReplayStatus, WorkerStatus
from srl.controller.prometheus import MAX_WORKERS, MetricsServer, exposition


def samples(*statuses: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text, kind = exposition(list(statuses))  # type: ignore[arg-type]
    assert kind.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_runs_workers_and_streams_have_samples(tmp_path: Path) -> None:
    replay = [ReplayStatus("replay/0", 50, 100, 1000, 1.0, 0.9, age=40)]
    found = samples(status_of(tmp_path / "one", replay=replay), status_of(tmp_path / "two", steps=7))
    assert found["srl_steps_total", (("run", "one"),)] == 1000
    assert found["srl_steps_total", (("run", "two"),)] == 7
    worker = (("group", "actors"), ("host", ""), ("run", "one"), ("worker", "actors/0"))
    assert found["srl_worker_cpu_ratio", worker] == 0.5
    assert found["srl_worker_resident_memory_bytes", worker] == 100e6
    assert found["srl_worker_busy_ratio", tuple(sorted([*worker, ("phase", "env")]))] == 0.5
    assert found["srl_workers", (("group", "actors"), ("run", "one"), ("state", "running"))] == 2
    assert found["srl_stream_consumed_total", (("run", "one"), ("stream", "samples/0"))] == 9
    assert found["srl_replay_updates_per_decision", (("run", "one"), ("stream", "replay/0"))] == 0.9
    assert ("srl_replay_target_age", (("run", "one"), ("stream", "replay/0"))) not in found
    assert found["srl_replay_wanted_updates_per_decision", (("run", "one"), ("stream", "replay/0"))] == 1.0
    assert found["srl_replay_age_decisions", (("run", "one"), ("stream", "replay/0"))] == 40
    assert found["srl_episode_return", (("policy", "policy"), ("run", "one"))] == 10
    assert found["srl_metric", (("name", "policy_loss"), ("run", "one"))] == 0.1
    assert found["srl_refused_connections_total", (("reason", "silent"), ("run", "one"))] == 2


def test_the_age_of_targets_is_a_sample_where_they_are_reanalyzed(tmp_path: Path) -> None:
    memory = ReplayStatus("replay/0", 50, 100, 1000, 1.0, 0.9, target_age=0, max_target_age=4)
    found = samples(status_of(tmp_path / "one", replay=[memory]))
    assert found["srl_replay_target_age", (("run", "one"), ("stream", "replay/0"))] == 0.0


def test_a_server_shows_the_newest_status(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = MetricsServer(port)
    try:
        for steps in (1, 2):
            server.show(status_of(tmp_path / "mine", steps=steps))
            text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
            assert f'srl_steps_total{{run="mine"}} {steps}.0' in text
        with pytest.raises(OSError, match=f"--metrics-port {port} cannot be used"):
            MetricsServer(port)
    finally:
        server.close()


def test_a_run_with_very_many_workers_has_only_sums(tmp_path: Path) -> None:
    workers = [WorkerStatus(f"actors/{n}", "actors", state="running") for n in range(MAX_WORKERS + 1)]
    found = samples(status_of(tmp_path / "large", workers=workers))
    assert found["srl_workers", (("group", "actors"), ("run", "large"), ("state", "running"))] == MAX_WORKERS + 1
    assert not any(name == "srl_worker_cpu_ratio" for name, _ in found)


def test_the_dashboard_for_grafana_asks_for_metrics_that_exist(tmp_path: Path) -> None:
    asked = json.loads((Path(__file__).parents[2] / "docs/grafana/srl.json").read_text())
    expressions = [target["expr"] for panel in asked["panels"] for target in panel["targets"]]
    names = {name for expression in expressions for name in re.findall(r"srl_\w+", expression)}
    evaluation = EvaluationStatus(1, 1, 1, 1, 5.0, None, 5.0, 5.0, 1)
    status = status_of(tmp_path / "mine", policies={"policy": PolicyStatus(return_mean=1.0, evaluation=evaluation)})
    assert names <= {name for name, _ in samples(status)}
    assert len(names) > 10
