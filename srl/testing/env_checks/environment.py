"""The check that users run on their own environment: `srl check-env ENV`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from srl.api.lanes import Lanes
from srl.environments.adapters.gymnasium import GymnasiumConfig, GymnasiumLanes
from srl.environments.adapters.vector import VectorConfig, VectorLanes
from srl.environments.factories import locate, parameters_of
from srl.environments.pettingzoo.config import PettingZooConfig, is_parallel, is_pettingzoo, lanes_of
from srl.environments.registry import lanes_config
from srl.testing.env_checks.driver import Caller, Probe
from srl.testing.env_checks.gymnasium_driver import GymnasiumProbe, VectorProbe
from srl.testing.env_checks.lanes import check_lanes
from srl.testing.env_checks.pettingzoo_driver import ParallelProbe, TurnProbe
from srl.testing.env_checks.rollout import Extent, check_rollout
from srl.testing.findings import CheckStopped, Finding, Findings, has_errors, report

__all__ = ["Finding", "check_environment", "check_lanes", "has_errors", "report"]

NUM_COPIES = 2


def check_environment(
    environment: str | Callable[..., Any],
    kwargs: Mapping[str, Any] | None = None,
    steps: int = 1000,
    seed: int = 0,
    timeout: float = 10.0,
    seconds: float = 20.0,
) -> list[Finding]:
    """Check an environment on its own and then, if it has no errors, as lanes. Return the problems found.

    `environment` is a name as for :func:`srl.environments.registry.lanes_config`, or a function that returns a
    Gymnasium, vector (it takes `num_envs`) or PettingZoo environment, or lanes (it takes `num_copies`). A call to the
    environment that takes longer than `timeout` seconds counts as stuck; no new steps start after `seconds`. Call this
    in the main thread: a stuck environment cannot be interrupted in other threads.
    """
    findings = Findings()
    extent = Extent(steps, seconds, timeout, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these checks cover what environments and their wrappers warn about
        for make_one, make_lanes in _subjects(environment, dict(kwargs or {}), findings, timeout):
            if make_one is not None and not findings.have_errors:
                check_rollout(_prober(make_one), findings, extent)
            if make_lanes is not None and not findings.have_errors:
                _check_as_lanes(make_lanes, findings, extent)
    return findings.all


Subject = tuple[Callable[[], Any] | None, Callable[[], Lanes] | None]
"""Two functions, each optional: one creates a bare environment, the other creates lanes of it."""


def _subjects(
    environment: str | Callable[..., Any], kwargs: dict[str, Any], findings: Findings, timeout: float
) -> list[Subject]:
    call = Caller(findings, timeout=max(timeout, 60.0))  # imports and downloads take a while
    try:
        if not isinstance(environment, str):
            return _of_function(environment, getattr(environment, "__name__", "environment"), kwargs, call)
        config = lanes_config(environment, **kwargs)
        if isinstance(config, (GymnasiumConfig, VectorConfig)) and config.located:
            return _of_function(locate(config.name), config.name, dict(config.kwargs), call)
        if isinstance(config, PettingZooConfig):
            return [_of_pettingzoo(config.make, config.name, call)]
        if isinstance(config, GymnasiumConfig):
            return [(config.make, lambda: config.build(NUM_COPIES))]
        if isinstance(config, VectorConfig):
            single = GymnasiumConfig(config.name, config.kwargs)
            return [(single.make, None), (lambda: config.make(NUM_COPIES), lambda: config.build(NUM_COPIES))]
        return [(None, lambda: config.build(NUM_COPIES))]
    except CheckStopped:
        return []
    except (ImportError, ValueError) as error:
        in_file = isinstance(environment, str) and ".py:" in environment
        fix = "correct the path, the name or the options" if in_file else "correct the name, or install the package"
        findings.error("an environment with that name and those options", str(error), fix)
        return []


def _of_function(factory: Callable[..., Any], name: str, kwargs: dict[str, Any], call: Caller) -> list[Subject]:
    parameters = parameters_of(factory)
    if "num_copies" in parameters:
        return [(None, lambda: factory(num_copies=NUM_COPIES, **kwargs))]
    options = {**kwargs, "num_envs": NUM_COPIES} if "num_envs" in parameters else kwargs
    example = call("making the environment", factory, **options)

    def make() -> Any:
        return factory(**options)

    if is_pettingzoo(example):
        return [_of_pettingzoo(make, name, call)]
    if isinstance(example, VectorEnv):
        from srl.environments.adapters.autoreset import next_step

        return [(make, lambda: VectorLanes(name, lambda: next_step(make())))]
    if isinstance(example, gymnasium.Env):
        return [(make, lambda: GymnasiumLanes(name, make, NUM_COPIES))]
    if isinstance(example, Lanes):
        return [(None, lambda: factory(**options))]
    expected = "a gymnasium.Env, a VectorEnv, a PettingZoo environment or srl.api.lanes.Lanes"
    call.findings.error(expected, type(example).__name__, "derive your class from gymnasium.Env")
    return []


def _of_pettingzoo(make: Callable[[], Any], name: str, call: Caller) -> Subject:
    call("making the environment", make).close()
    return make, lambda: lanes_of(name, make, NUM_COPIES)


def _prober(make: Callable[[], Any]) -> Callable[[Caller], Probe]:
    def probe(call: Caller) -> Probe:
        environment = call("making the environment", make)
        if isinstance(environment, VectorEnv):
            return VectorProbe(environment, call)
        if not is_pettingzoo(environment):
            return GymnasiumProbe(environment, call)
        return ParallelProbe(environment, call) if is_parallel(environment) else TurnProbe(environment, call)

    return probe


def _check_as_lanes(make: Callable[[], Lanes], findings: Findings, extent: Extent) -> None:
    call = Caller(findings, timeout=extent.seconds + 2 * NUM_COPIES * extent.timeout)
    steps = min(extent.steps, 200)
    try:
        lanes = call("building its lanes", make)
        if not isinstance(lanes, Lanes):
            fix = "derive your class from srl.api.lanes.Lanes"
            findings.stop("an instance of srl.api.lanes.Lanes", type(lanes).__name__, fix)
        found = call("stepping its lanes", check_lanes, lanes, steps, extent.seed, extent.seconds)
    except CheckStopped:
        return
    for finding in found:
        findings.add(finding)
