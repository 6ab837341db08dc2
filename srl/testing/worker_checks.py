"""The contract of workers (:mod:`srl.api.worker`), as a check that users can run on their own worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from srl.api.worker import PollResult, Worker, WorkerConfig
from srl.base.errors import raised
from srl.base.tree import Array
from srl.testing.contexts import World
from srl.testing.env_checks.driver import DeadlineExceeded, deadline
from srl.testing.findings import Finding, Findings, check_sendable

Result = TypeVar("Result")
READ = "read srl/api/worker.py and docs/howto/worker-and-stream.md"


def check_worker(
    config: WorkerConfig,
    policies: Mapping[str, Array | None] | None = None,
    polls: int = 100,
    seconds: float = 1.0,
) -> list[Finding]:
    """Build the worker in a test context, poll it and close it, and compare its behavior with the contract.

    `policies` maps the policies of the run to the parameters that are published as version 0; None publishes nothing.
    By default there is one policy, called `policy`. A poll that takes longer than `seconds` counts as blocking.
    """
    findings = Findings()
    policies = {"policy": None} if policies is None else policies
    _check_config(findings, config, policies)
    if findings.have_errors:
        return findings.all
    world = World(policies=policies)
    try:
        for policy, parameters in policies.items():
            if parameters is not None:
                world.stores[policy].push(0, np.asarray(parameters, np.float32))
        _check_life(findings, lambda: config.build(world.context("checked")), polls, seconds)
    finally:
        world.close()
    return findings.all


def _check_config(findings: Findings, config: WorkerConfig, policies: Mapping[str, Any]) -> None:
    name = type(config).__name__
    if not isinstance(config, WorkerConfig) or not dataclasses.is_dataclass(config):
        findings.error("a dataclass that inherits from srl.api.worker.WorkerConfig", name, READ)
        return
    check_sendable(findings, config)
    policy = config.committed_policy()
    if policy and policy not in policies:
        expected = f"`committed_policy` to be one of {sorted(policies)}"
        findings.error(expected, repr(policy), "pass its name in `policies`")


def _check_life(findings: Findings, build: Callable[[], Worker], polls: int, seconds: float) -> None:
    worker = _call(findings, "build", build, 60.0)
    if worker is None:
        return
    if not isinstance(worker, Worker):
        findings.error("a worker with `poll` and `close`", type(worker).__name__, READ)
        return
    for _ in range(polls):
        if findings.have_errors:
            break
        result = _call(findings, "poll", worker.poll, seconds)
        if findings.have_errors:
            break
        if not isinstance(result, PollResult):
            findings.error("`poll` to return WORKED, IDLE or FINISHED", repr(result), READ)
        elif result.finished:
            break
    _call(findings, "close", worker.close, 10.0)
    if not findings.have_errors:
        _call(findings, "close, called twice,", worker.close, 10.0)


def _call(findings: Findings, name: str, call: Callable[[], Result], seconds: float) -> Result | None:
    """Return the result of the call, or None after an error, which becomes a finding."""
    try:
        with deadline(seconds):
            return call()
    except DeadlineExceeded as error:
        advice = "do less work in each call; move waiting into a thread that wakes the worker (`context.waker()`)"
        findings.error(f"{name} to return within {seconds:g} s", f"it was still running {error}", advice)
    except Exception as error:
        findings.error(f"{name} to return", raised(error), READ)
    return None
