"""Every kind of bottleneck is recognized from shares of time, and the advice names an option."""

from __future__ import annotations

import msgspec
import pytest

from srl.api.status import RunStatus, Settings, StreamStatus, WorkerStatus
from srl.controller.diagnosis import diagnose, first_update

KNOWN = Settings(lanes=256, ring=1, batch=4096, num_minibatches=4)


def worker(name: str, pid: int = 0, cpu_percent: float = 0.0, **busy: float) -> WorkerStatus:
    busy["waiting"] = 1 - sum(busy.values())
    group = name.split("/")[0]
    return WorkerStatus(name, group, pid=pid or hash(name), state="running", busy=busy, cpu_percent=cpu_percent)


def run(*workers: WorkerStatus, max_lag: int = 1, filled: float = 0.0, settings: Settings = KNOWN) -> RunStatus:
    streams = [StreamStatus("samples", "push", filled=filled)]
    return RunStatus(
        "r", "CartPole-v1", "ppo", "/r", workers=list(workers), streams=streams, max_lag=max_lag, settings=settings
    )


@pytest.mark.parametrize(
    ("status", "cores", "bottleneck", "advice"),
    [
        (
            run(worker("actors/0", env=0.3, inference=0.2), worker("trainers/0", update=0.95), filled=1.0),
            2,
            "trainer: 95 % busy, actors wait 50 %",
            "make each update cheaper: --algo.num-minibatches 2",
        ),
        (
            run(worker("actors/0", env=0.3, inference=0.2), worker("trainers/0", update=0.95), filled=1.0),
            8,
            "trainer: 95 % busy, actors wait 50 %",
            "train on another core: --trainers 2",
        ),
        (
            run(worker("actors/0", env=0.3), worker("trainers/0", update=0.5, publish=0.4)),
            8,
            "trainer: 90 % busy, actors wait 70 %; much of this is publishing parameters",
            "publish less often: --batch 8192",
        ),
        (
            run(worker("actors/0", env=0.8, inference=0.15), worker("trainers/0", update=0.3)),
            8,
            "environment: actors step it 80 % of the time",
            "use the free cores: --actors 7",
        ),
        (
            run(worker("actors/0", env=0.8, inference=0.15), worker("trainers/0", update=0.4)),
            2,
            "environment: actors step it 80 % of the time",
            "use a faster environment (a native vector environment, EnvPool) or more cores",
        ),
        (
            run(worker("actors/0", env=0.2, inference=0.7), worker("trainers/0", update=0.4)),
            2,
            "inference: actors compute actions 70 % of the time",
            "amortize each call over more lanes: --lanes 512",
        ),
        (
            run(worker("actors/0", env=0.2, other=0.7), worker("trainers/0", update=0.4), settings=Settings()),
            2,
            "overhead per step: actors spend 70 % outside environment and inference",
            "amortize each call over more lanes: a larger --lanes",
        ),
        (
            run(worker("actors/0", env=0.1), worker("replay/0", other=0.9), worker("trainers/0", update=0.3)),
            8,
            "replay worker: 90 % busy, trainers wait for its batches",
            "use another core: --replay-workers 2",
        ),
        (
            run(worker("actors/0", env=0.1), worker("replay/0", other=0.9), worker("trainers/0", update=0.3)),
            2,
            "replay worker: 90 % busy, trainers wait for its batches",
            "draw inside the trainers, without copies between processes: --replay inline",
        ),
        (
            run(
                worker("replay/0"), worker("buffers/0", other=0.9), worker("trainers/0", update=0.3), worker("actors/0")
            ),
            8,
            "buffer worker: 90 % busy, trainers wait for its batches",
            "use other cores: --replay-workers 2",
        ),
        (
            run(
                worker("replay/0"), worker("buffers/0", other=0.9), worker("trainers/0", update=0.3), worker("actors/0")
            ),
            4,
            "buffer worker: 90 % busy, trainers wait for its batches",
            "change batches inside the trainers, without copies between processes: leave out --buffer-workers",
        ),
        (
            run(worker("actors/0", env=0.2), worker("policies/0", inference=0.9), worker("trainers/0", update=0.2)),
            8,
            "policy worker: 90 % busy, actors wait for its answers",
            "use another core: --policies 2",
        ),
        (
            run(worker("actors/0", env=0.2), worker("policies/0", inference=0.9), worker("trainers/0", update=0.2)),
            2,
            "policy worker: 90 % busy, actors wait for its answers",
            "make batches larger: --ring 2",
        ),
        (
            run(worker("actors/0", env=0.4), worker("policies/0", inference=0.4), worker("trainers/0", update=0.3)),
            8,
            "latency: actors wait for answers although policy workers are not busy",
            "overlap waiting with stepping: --ring 2",
        ),
        (
            run(worker("actors/0", env=0.5), worker("trainers/0", update=0.45), max_lag=0),
            2,
            "alternation: with --max-lag 0, actors and trainer take turns",
            "let them overlap: --max-lag 1",
        ),
        (
            run(worker("actors/0", env=0.5), worker("trainers/0", update=0.45), max_lag=0),
            3,
            "alternation: with --max-lag 0, actors and trainer take turns",
            "let them overlap with --max-lag 1, or stay synchronous with --trainers 2",
        ),
        (
            run(worker("actors/0", env=0.95), worker("actors/1", env=0.95), worker("trainers/0", update=0.05)),
            2,
            "environment: actors step it 95 % of the time",
            "use a faster environment (a native vector environment, EnvPool) or more cores",
        ),
        (
            run(*(worker(f"actors/{n}", env=0.1) for n in range(3)), worker("trainers/0", update=0.95)),
            4,
            "trainer: 95 % busy, actors wait 90 %",
            "make each update cheaper: --algo.num-minibatches 2",
        ),
        (
            run(worker("actors/0", env=0.6), worker("trainers/0", update=0.6), max_lag=1, filled=0.1),
            2,
            "hand-over: trainer and actors wait for each other",
            "allow more blocks in flight: --max-lag 2",
        ),
        (
            run(worker("actors/0", env=0.5, inference=0.45), worker("trainers/0", update=0.9)),
            2,
            "balanced: all cores are busy",
            "more or faster cores; no option would help",
        ),
        (
            run(worker("actors/0", pid=5, env=0.2, inference=0.3), worker("trainers/0", pid=5, update=0.45)),
            2,
            "one thread: all workers take turns, and most of the time goes into updates",
            "use all 2 cores: --scheduler processes",
        ),
    ],
)
def test_the_bottleneck_comes_with_an_option_to_change(
    status: RunStatus, cores: int, bottleneck: str, advice: str
) -> None:
    assert diagnose(status, cores) == (bottleneck, advice)


def test_additional_threads_of_torch_count_as_busy_cores() -> None:
    status = run(worker("actors/0", env=0.3), worker("trainers/0", update=0.95, cpu_percent=750))
    assert diagnose(status, 8)[0] == "balanced: all cores are busy"


def test_the_advice_for_a_trainer_depends_on_the_cost_of_an_update() -> None:
    for settings, advice in ((Settings(epochs=3, num_minibatches=1), "--algo.epochs 2"), (Settings(), "a smaller")):
        status = run(worker("actors/0", env=0.5), worker("trainers/0", update=0.95), settings=settings)
        assert advice in diagnose(status, 2)[1]


def test_there_are_never_more_actors_suggested_than_cores_without_trainers() -> None:
    actors = [worker(f"actors/{index}", env=0.8) for index in range(2)]
    assert diagnose(run(*actors, worker("trainers/0", update=0.1)), 4)[1] == "use the free cores: --actors 3"
    assert "--actors" not in diagnose(run(*actors, worker("trainers/0", update=0.1)), 3)[1]


def test_there_is_no_diagnosis_before_actors_and_trainers_work() -> None:
    assert diagnose(run(), 2) == ("", "")
    assert diagnose(run(worker("actors/0", env=0.9)), 2) == ("", "")
    assert diagnose(run(WorkerStatus("actors/0", "actors"), WorkerStatus("trainers/0", "trainers")), 2) == ("", "")


def test_the_way_to_the_first_update_is_shown() -> None:
    sizes = Settings(batch=2000, updates_per_decision=0.5)
    status = msgspec.structs.replace(run(settings=sizes), decisions=1500, first_steps=1000, env_fps=50.0)
    assert first_update(status) == (
        "first update: actors have made 500 of the 2,000 decisions of a batch, complete in about 30 s",
        "",
    )
    assert first_update(msgspec.structs.replace(status, env_fps=0.0))[0].endswith("of a batch")
    trainer = worker("trainers/0", update=0.9)
    complete = msgspec.structs.replace(status, decisions=3000, workers=[trainer])
    assert first_update(complete) == ("first update: the trainer makes 1,000 gradient steps", "")
    draws = msgspec.structs.replace(complete, workers=[worker("trainers/0")])
    assert first_update(draws) == ("first update: 1,000 minibatches are drawn from the replay", "")
    on_policy = msgspec.structs.replace(complete, settings=Settings(batch=2000))
    assert first_update(on_policy) == ("first update: the trainer computes it", "")
    assert first_update(msgspec.structs.replace(status, env_fps=1.0))[0].endswith("in about 25 min")
    actors = worker("actors/0", env=0.99), worker("actors/1", waiting=1.0)  # the second one has no room for a block
    slow = msgspec.structs.replace(run(*actors), settings=Settings(lanes=16, batch=2000))
    what, advice = first_update(slow)
    assert "taking the first steps in 16 environment copies each, none has returned yet" in what
    assert "--horizon" in advice


def test_workers_of_a_group_count_by_their_mean() -> None:
    status = run(worker("actors/0", env=0.9), worker("actors/1", env=0.1), worker("trainers/0", update=0.85))
    assert diagnose(status, 8)[0] == "trainer: 85 % busy, actors wait 50 %"
