"""The status of a run, made from gauges: totals, rates, curves, and the figures of each policy."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.waiting import until

from srl.api.block import Episodes
from srl.api.control import EpisodeReport, Evaluated, MetricsReport, UpdateRecord
from srl.api.experiment import Experiment, WorkerGroup
from srl.api.status import RunStatus, Settings
from srl.api.streams import StreamEnd
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.meter import Counter, Meter, Phase
from srl.controller.gauges import Gauges, WorkerView
from srl.controller.metrics import evaluation_row, system_row, update_row
from srl.controller.policy_gauges import CURVE_POINTS


def new_gauges() -> Gauges:
    return Gauges(
        Experiment("run", 0, (), ("policy",), ("policy",), "Env-v0", "ppo", target_steps=100, max_lag=1), "/runs/run"
    )


@pytest.fixture
def gauges() -> Gauges:
    return new_gauges()


def member(name: str, incarnation: int = 0, **counters: int) -> WorkerView:
    meter = Meter.unshared()
    meter.reset()
    for counter, value in counters.items():
        meter.set(Counter[counter.upper()], value)
    return WorkerView(WorkerId(name, 0, incarnation), meter, 0, "running")


def status(gauges: Gauges, *members: WorkerView, now: float = 0.0, state: str = "running") -> RunStatus:
    return gauges.status(list(members), now, now, state, 0, [])


def test_totals_are_sums_over_workers(gauges: Gauges) -> None:
    found = status(
        gauges,
        member("actors", decisions=30, lane_failures=1, unrecorded=7),
        member("trainers", learned=20, version=4, lag_sum=10, lag_count=20, lag_max=1, skipped_updates=2),
        member("others", learned=5, version=3, lag_sum=0, lag_count=5),
    )
    assert (found.steps, found.version, found.lane_failures) == (25, 4, 1)
    assert (found.lag_mean, found.lag_max) == (0.4, 1)
    assert (found.skipped_updates, found.unrecorded_decisions) == (2, 7)
    row = system_row(found)
    assert (row["skipped_updates"], row["unrecorded_decisions"]) == (2.0, 7.0)


def test_totals_survive_the_restart_of_a_worker(gauges: Gauges) -> None:
    trainer, actor = member("trainers", learned=100, version=7, lag_sum=50, lag_count=100, lag_max=2), member("actors")
    assert status(gauges, trainer, actor).steps == 100
    gauges.forget(trainer.worker_id, trainer.meter)
    dead = WorkerView(trainer.worker_id, Meter.unshared(), 0, "ended")
    found = status(gauges, dead, actor)
    assert (found.steps, found.version, found.lag_mean, found.lag_max) == (100, 7, 0.5, 2)
    replacement = member("trainers", incarnation=1, learned=20, version=8)
    found = status(gauges, replacement, actor)
    assert (found.steps, found.version, found.lag_max) == (120, 8, 2)
    gauges.forget(replacement.worker_id, replacement.meter)
    assert status(gauges, actor).steps == 120


def test_a_resumed_run_continues_to_count(gauges: Gauges) -> None:
    gauges.resume_from({"policy": {"steps": 1000, "version": 7}})
    found = status(gauges, member("trainers", learned=24))
    assert (found.steps, found.first_steps, found.version) == (1024, 1000, 7)


def test_rates_cover_the_last_seconds(gauges: Gauges) -> None:
    actor, trainer = member("actors"), member("trainers")
    assert status(gauges, actor, trainer, now=0.0).env_fps == 0.0
    for second in range(1, 21):
        speed = 100 if second <= 10 else 300
        actor.meter.add(Counter.DECISIONS, speed)
        trainer.meter.add(Counter.LEARNED, speed // 2)
        found = status(gauges, actor, trainer, now=float(second))
        if second == 4:
            assert (found.env_fps, found.train_fps) == (100.0, 50.0)
    assert (found.env_fps, found.train_fps) == (300.0, 150.0)


def test_steps_that_take_longer_than_the_window_have_a_rate(gauges: Gauges) -> None:
    actor, trainer = member("actors"), member("trainers")
    for second in range(97):
        if second and second % 32 == 0:
            actor.meter.add(Counter.DECISIONS, 16)
        found = status(gauges, actor, trainer, now=float(second))
        if second in (40, 95):
            assert 0.2 < found.env_fps < 0.6
    assert 0.4 < found.env_fps < 1.1
    assert status(gauges, actor, trainer, now=300.0).env_fps == 0.0


def test_a_run_that_stops_before_its_first_update_keeps_its_bottleneck(gauges: Gauges) -> None:
    gauges._settings = Settings(batch=2048)
    actor, trainer = member("actors"), member("trainers")
    running = status(gauges, actor, trainer, now=1.0)
    assert running.bottleneck.startswith("first update: ")
    assert status(gauges, actor, trainer, now=2.0, state="stopped").bottleneck == running.bottleneck


def test_a_run_without_workers_has_a_status(gauges: Gauges) -> None:
    found = status(gauges)
    assert (found.steps, found.version, found.workers, found.return_mean) == (0, 0, [], None)


def episodes(*returns: float, **facts: list[float]) -> dict[str, Episodes]:
    """Episodes of length 5 of one actor."""
    columns = {"return": list(returns), "length": [5.0] * len(returns), **facts}
    return {"actors/0": Episodes.of({name: np.array(values) for name, values in columns.items()})}


def update(number: int, *returns: float, policy: str = "policy", steps: int = 0, **facts: list[float]) -> UpdateRecord:
    metrics = {"entropy": number / 10}
    return UpdateRecord(policy, number, steps or 100 * number, 0.0, metrics, episodes(*returns, **facts), 6, 4, 2)


def test_returns_are_means_over_the_last_hundred_episodes(gauges: Gauges) -> None:
    gauges.add_record(update(1, *[0.0] * 1000))
    gauges.add_record(update(2, *[10.0] * 80))
    found = status(gauges)
    assert (found.episodes, found.return_mean, found.length_mean) == (1080, 8.0, 5.0)


def test_the_curve_stays_short_and_covers_the_run(gauges: Gauges) -> None:
    gauges.add_record(update(1))  # before the first episode there is nothing to draw
    assert status(gauges).return_curve == []
    for number in range(5000):
        gauges.add_record(update(number + 2, *[float(number)] * 100))
    curve = status(gauges).return_curve
    assert CURVE_POINTS / 2 <= len(curve) <= CURVE_POINTS
    assert curve == sorted(curve)
    assert curve[0] < 100
    assert curve[-1] > 4900


def test_the_row_of_an_update_has_its_metrics_and_the_means_of_its_episodes() -> None:
    record = update(3, 1.0, 5.0, won=[1.0, np.nan], seed=[7.0, 8.0])
    own = {"update": 3, "entropy": 0.3, "lag_mean": 1.5, "lag_max": 2, "episodes": 2, "return": 3.0, "length": 5.0}
    own |= {"return_min": 1.0, "return_max": 5.0, "won": 1.0}
    shared = {"kind": "update", "policy": "policy", "elapsed": 2.5, "facts": ["won"]}
    assert update_row(record, 2.5) == shared | own
    prefixed = {f"policy/{name}": value for name, value in own.items()}
    assert update_row(record, 2.5, "policy") == shared | prefixed | {"policy/steps": 300}
    both = update_row(record, 2.5, earlier=[update(1, 6.0)])
    assert (both["updates"], both["update"], both["episodes"], both["return"], both["lag_mean"]) == (2, 3, 3, 4.0, 1.5)
    assert (both["entropy"], both["entropy_min"], both["entropy_max"]) == (pytest.approx(0.2), 0.1, 0.3)
    row = update_row(update(3), 2.5)
    assert row["episodes"] == 0
    assert not {"return", "length", "return_min", "facts"} & row.keys()


def test_streams_are_named_after_their_consumers(gauges: Gauges) -> None:
    found = status(
        gauges,
        member("trainers", posted=9, consumed=6, dropped=1, queued=250),
        member("policies", batches=4, batched_lanes=100),
        member("actors"),
    )
    samples, requests = found.streams
    assert (samples.name, samples.filled, samples.posted) == ("samples/0", 0.25, 9)
    assert (samples.consumed, samples.dropped) == (6, 1)
    assert (requests.name, requests.batch_mean) == ("requests/0", 25.0)
    assert system_row(found)["streams/requests/0/batch_mean"] == 25.0


def test_an_evaluation_has_the_step_of_its_version_and_the_best_is_remembered(gauges: Gauges) -> None:
    for version in (5, 10, 20):
        gauges.add_record(update(version))
    gauges.add_report(Evaluated("policy", 5, [10.0, 20.0], [1.0, 3.0]))
    gauges.add_report(Evaluated("policy", 20, [8.0], [4.0]))
    found = status(gauges).evaluation
    assert found is not None
    assert (found.count, found.step, found.return_mean, found.return_interval) == (2, 2000, 8.0, None)
    assert (found.best_return, found.best_step, found.length_mean) == (15.0, 500, 4.0)
    row = evaluation_row(found, 1.0, "hiders", "hiders")
    assert (row["kind"], row["hiders/eval/return"], row["hiders/eval/version"]) == ("evaluation", 8.0, 20)


def test_the_first_version_was_made_where_the_run_began(gauges: Gauges) -> None:
    gauges.add_report(Evaluated("policy", 0, [1.0], [4.0]))
    gauges.add_record(update(1))
    gauges.add_report(Evaluated("policy", 0, [1.0], [4.0]))
    assert [evaluation.step for _, evaluation in gauges.drain_evaluations()] == [0, 0]
    resumed = new_gauges()
    resumed.resume_from({"policy": {"steps": 700, "version": 7}})
    resumed.add_record(update(8))
    for version in (7, 8):
        resumed.add_report(Evaluated("policy", version, [1.0], [4.0]))
    evaluations = resumed.drain_evaluations()
    assert [evaluation.step for _, evaluation in evaluations] == [700, 800]
    assert {evaluation.policy for _, evaluation in evaluations} == {"policy"}


def test_the_best_evaluation_survives_a_resume(gauges: Gauges) -> None:
    gauges.add_report(Evaluated("policy", 1, [9.0, 11.0], [5.0, 5.0]))
    resumed = new_gauges()
    resumed.restore(json.loads(json.dumps(gauges.state())))
    resumed.add_report(Evaluated("policy", 2, [3.0], [5.0]))
    found = status(resumed).evaluation
    assert found is not None
    assert (found.count, found.return_mean, found.best_return) == (2, 3.0, 10.0)


def test_statistics_of_episodes_are_means_over_the_last_hundred_that_have_them(gauges: Gauges) -> None:
    gauges.add_record(update(1, 0.0, 0.0, seen=[1.0, np.nan]))
    gauges.add_record(update(2, 0.0, seen=[0.0]))
    assert status(gauges).facts == {"seen": 0.5}
    gauges.add_record(update(3, *[0.0] * 100, seen=[3.0] * 100))
    assert status(gauges).facts == {"seen": 3.0}


class CommittingConfig(WorkerConfig):
    def __init__(self, policy: str) -> None:
        self.policy = policy

    def build(self, context: object) -> Any:
        raise NotImplementedError

    def committed_policy(self) -> str:
        return self.policy

    def ends(self) -> list[StreamEnd]:
        return [StreamEnd(self.policy, "push", "target"), StreamEnd(self.policy, "push", "source")]


def two_policies() -> Gauges:
    groups = tuple(WorkerGroup(f"trainers-{name}", CommittingConfig(name), 1) for name in ("hiders", "seekers"))
    return Gauges(Experiment("run", 0, groups, ("hiders", "seekers"), ("hiders", "seekers"), "Env-v0"), "/runs/run")


def test_figures_of_several_policies_are_kept_apart() -> None:
    gauges = two_policies()
    gauges.add_record(update(1, 1.0, 3.0, policy="hiders", moves=[1.0, 1.0]))
    assert gauges.recorded_step == 100
    gauges.add_record(update(2, -8.0, policy="seekers", moves=[2.0]))
    assert gauges.recorded_step == 300
    gauges.add_report(MetricsReport("", {"greedy": 0.3}))
    gauges.add_report(Evaluated("hiders", 3, [4.0], [5.0]))
    gauges.add_report(Evaluated("seekers", 9, [-4.0], [5.0]))
    found = status(
        gauges,
        member("trainers-hiders", learned=10, version=4, lag_sum=10, lag_count=10, lag_max=2, posted=1),
        member("trainers-seekers", learned=20, version=9, lag_count=20, posted=1),
    )
    hiders, seekers = found.policies["hiders"], found.policies["seekers"]
    assert (hiders.return_mean, hiders.episodes, seekers.return_mean, seekers.episodes) == (2.0, 2, -8.0, 1)
    assert (hiders.facts, seekers.facts) == ({"moves": 1.0}, {"moves": 2.0})
    assert found.episodes == 3
    assert (found.return_mean, found.length_mean, found.facts, found.return_curve) == (None, None, {}, [])
    assert (hiders.steps, hiders.version, hiders.lag_mean, hiders.lag_max) == (10, 4, 1.0, 2)
    assert (seekers.steps, seekers.version, seekers.lag_mean, seekers.lag_max) == (20, 9, 0.0, 0)
    assert (found.steps, found.version, found.updates) == (30, 9, 13)
    assert found.metrics == {"hiders/entropy": 0.1, "seekers/entropy": 0.2, "greedy": 0.3}
    assert [(policy, evaluation.version) for policy, evaluation in gauges.drain_evaluations()] == [
        ("hiders", 3),
        ("seekers", 9),
    ]


def test_episodes_of_a_frozen_policy_are_not_those_of_the_learning_one() -> None:
    names = ("hiders", "seekers")
    gauges = Gauges(Experiment("run", 0, (), names, ("hiders",), "Env-v0"), "/runs/run")
    gauges.add_record(update(1, 1.0, policy="hiders"))
    gauges.add_report(EpisodeReport("seekers", episodes(-1.0, -3.0)))
    found = status(gauges)
    assert (found.return_mean, found.policies["hiders"].episodes) == (1.0, 1)
    assert (found.policies["seekers"].return_mean, found.policies["seekers"].episodes) == (-2.0, 2)


def work(worker: WorkerView) -> None:
    """Let the worker spend 10 ms in its phase."""
    start = worker.meter.seconds()[Phase.ENV]
    until(lambda: worker.meter.seconds()[Phase.ENV] >= start + 0.01)


def test_the_start_of_a_worker_is_not_work(gauges: Gauges) -> None:
    worker = member("actors")
    assert [status(gauges, worker, now=now).workers[0].busy for now in (0.0, 1.0)] == [{}, {}]
    worker.meter.enter(Phase.ENV)
    work(worker)
    assert status(gauges, worker, now=2.0).workers[0].busy.keys() == {"env"}


def test_the_bottleneck_is_measured_from_the_first_update_on(gauges: Gauges) -> None:
    actor, trainer = member("actors"), member("trainers")
    actor.meter.enter(Phase.ENV)
    trainer.meter.enter(Phase.WAITING)
    for now in range(10):
        assert status(gauges, actor, trainer, now=now / 100).bottleneck == ""
        work(actor)
    trainer.meter.set(Counter.FIRST_UPDATE_NS, 1)
    assert status(gauges, actor, trainer, now=1.0).bottleneck == ""
    assert status(gauges, actor, trainer, now=1.9).bottleneck == ""
    work(actor)
    assert status(gauges, actor, trainer, now=2.0).bottleneck


def test_streams_of_several_policies_carry_the_name_of_their_policy() -> None:
    workers = [member(f"trainers-{name}", posted=1) for name in ("hiders", "seekers")]
    names = [stream.name for stream in status(two_policies(), *workers).streams]
    assert names == ["samples/hiders/0", "samples/seekers/0"]


def test_the_figures_of_every_policy_survive_a_takeover() -> None:
    gauges = two_policies()
    trainer = member("trainers-hiders", learned=10, version=4, lag_max=2)
    gauges.add_record(update(4, 1.0, policy="hiders", seen=[1.0]))
    gauges.add_report(Evaluated("seekers", 9, [-4.0], [5.0]))
    gauges.forget(trainer.worker_id, trainer.meter)
    successor = two_policies()
    successor.take_over(json.loads(json.dumps(gauges.state())))
    assert status(successor).policies == status(gauges).policies
    assert successor.recorded_step == gauges.recorded_step == 400
    assert status(successor).steps == 10


def test_the_figures_of_a_replay_memory_stay_when_its_worker_has_ended(gauges: Gauges) -> None:
    trainer = member("trainers", replay_capacity=100, replay_size=80, replay_bytes=640)
    gauges.forget(trainer.worker_id, trainer.meter)
    (replay,) = status(gauges, WorkerView(trainer.worker_id, Meter.unshared(), 0, "ended")).replay
    assert (replay.name, replay.size, replay.capacity, replay.num_bytes) == ("replay/0", 80, 100, 640)
    (replaced,) = status(gauges, member("trainers", 1, replay_capacity=100, replay_size=7)).replay
    assert replaced.size == 7
