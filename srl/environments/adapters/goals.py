"""Functions of goal environments: `compute_reward` and `compute_terminated` of Gymnasium-Robotics' convention."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from srl.api.lanes import GoalFunctions
from srl.base.errors import raised


def goal_functions(name: str, make: Callable[[], Any]) -> GoalFunctions:
    """Return the functions of an environment that `make` returns: a `gymnasium.Env`, a `VectorEnv` or lanes. The
    environment is closed, because its functions depend on the goals only. Raises ValueError if it has none."""
    try:
        environment = make()
    except Exception as error:
        raise ValueError(f"environment {name} could not be created: {raised(error)}") from error
    with suppress(Exception):  # Closing an environment may fail.
        environment.close()
    reward = _found(environment, "compute_reward")
    if reward is None:
        raise ValueError(
            f"environment {name} has no method compute_reward(achieved_goal, desired_goal, info), which hindsight "
            "(--algo.her) needs to compute rewards for other goals; found "
            f"{type(getattr(environment, 'unwrapped', environment)).__name__}"
        )
    return GoalFunctions(reward, _found(environment, "compute_terminated"))


def _found(environment: Any, name: str) -> Any:
    """Return a method of an environment, of the outermost wrapper that has it; of the first copy if only the copies of
    a vector environment have it; or None."""
    if hasattr(environment, "has_wrapper_attr"):
        return environment.get_wrapper_attr(name) if environment.has_wrapper_attr(name) else None
    for one in (environment, getattr(environment, "unwrapped", None)):
        if callable(method := getattr(one, name, None)):
            return method
    copies = getattr(getattr(environment, "unwrapped", None), "envs", None)
    return _found(copies[0], name) if copies else None
