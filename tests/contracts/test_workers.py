"""The contract of workers and their configs: the defaults of the base class, and the checker that users run."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.api.control import Notice
from srl.api.experiment import Experiment, WorkerGroup
from srl.api.worker import FINISHED, IDLE, WORKED, Context, PollResult, Worker, WorkerConfig
from srl.testing import check_worker


@dataclass(frozen=True)
class GreeterConfig(WorkerConfig):
    """Implements what the base class demands and nothing else. `fault` makes it break the contract."""

    fault: str = ""

    def build(self, context: Context) -> Greeter:
        if self.fault == "build":
            raise RuntimeError("on purpose")
        return Greeter(self.fault, context)


class Greeter:
    def __init__(self, fault: str, context: Context) -> None:
        self._fault = fault
        self._context = context
        self._greeted = self._closed = False

    def poll(self) -> PollResult:
        match self._fault:
            case "poll":
                raise RuntimeError("on purpose")
            case "block":
                threading.Event().wait(60.0)
            case "result":
                return None  # type: ignore[return-value]
        if self._greeted:
            return IDLE
        self._greeted = True
        self._context.report(Notice(f"hello from {self._context.worker_id.name}"))
        return WORKED

    def close(self) -> None:
        if self._closed and self._fault == "close twice":
            raise RuntimeError("on purpose")
        self._closed = True


def with_greeters(experiment: Experiment) -> Experiment:
    return replace(experiment, groups=(*experiment.groups, WorkerGroup("greeters", GreeterConfig(), 2)))


def test_the_base_class_has_defaults_for_everything_but_build() -> None:
    config = GreeterConfig()
    assert config.committed_policy() == ""
    assert config.resized(3) is config
    assert config.with_target_steps(7) is config
    assert config.sizes() == {}
    assert {field.name for field in dataclasses.fields(config)} == {"fault"}


def test_a_config_without_build_cannot_be_made() -> None:
    class Incomplete(WorkerConfig): ...

    with pytest.raises(TypeError, match="build"):
        Incomplete()  # type: ignore[abstract]


@pytest.mark.parametrize("scheduler", ["inline", "processes"])
def test_a_run_has_the_workers_of_a_minimal_config(scheduler: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 600, "actors": 1, "lanes": 2, "horizon": 8}
    run = srl.train("CartPole-v1", root=tmp_path, graph=with_greeters, scheduler=scheduler, **options)
    assert any("hello from greeters/1" in message for message in run.status.messages)


def test_the_checker_accepts_a_minimal_worker() -> None:
    assert check_worker(GreeterConfig()) == []


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ("build", "build to return"),
        ("poll", "poll to return"),
        ("block", "poll to return within"),
        ("result", "WORKED, IDLE or FINISHED"),
        ("close twice", "close, called twice"),
    ],
)
def test_the_checker_finds_what_breaks_the_contract(fault: str, wanted: str) -> None:
    (finding,) = check_worker(GreeterConfig(fault), seconds=0.2)
    assert wanted in finding.expected


@dataclass(frozen=True)
class UnsendableConfig(WorkerConfig):
    secret: object = field(default_factory=object)

    def build(self, context: Context) -> Worker:
        raise NotImplementedError


@dataclass(frozen=True)
class PublisherConfig(WorkerConfig):
    """Finishes at the first poll if the parameters that the check published are there."""

    def committed_policy(self) -> str:
        return "fixed"

    def build(self, context: Context) -> Publisher:
        return Publisher(context)


class Publisher:
    def __init__(self, context: Context) -> None:
        self._context = context

    def poll(self) -> PollResult:
        pulled = self._context.parameters("fixed").pull()
        assert pulled is not None
        assert pulled[1].tolist() == [3.0]
        return FINISHED

    def close(self) -> None: ...


def test_the_checker_wants_configs_that_other_processes_can_read() -> None:
    (finding,) = check_worker(UnsendableConfig())
    assert "JSON" in finding.expected


def test_the_checker_publishes_parameters_for_the_worker() -> None:
    assert check_worker(PublisherConfig(), policies={"fixed": np.array([3.0], np.float32)}) == []
    (finding,) = check_worker(PublisherConfig())
    assert "committed_policy" in finding.expected
