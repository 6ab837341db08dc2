"""The state of an environment in the middle of an episode, for exact resumption.

Gymnasium has no method for this, so its classic-control and toy-text environments are listed here with the attributes
that change from step to step. Other environments can implement :class:`srl.api.lanes.ResumableEnvironment`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from srl.api.lanes import ResumableEnvironment
from srl.base.seeding import generator_state, plain, restore_generator
from srl.base.state import NotResumable, State, pack, part, under, unpack
from srl.base.tree import Array
from srl.environments.adapters.wrappers import RepeatAction

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": ("state", "steps", "prev_done"),
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": ("state", "steps_beyond_terminated"),
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": ("state",),
    "gymnasium.envs.classic_control.acrobot:AcrobotEnv": ("state",),
    "gymnasium.envs.classic_control.mountain_car:MountainCarEnv": ("state",),
    "gymnasium.envs.classic_control.continuous_mountain_car:Continuous_MountainCarEnv": ("state",),
    "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv": ("s",),
    "gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv": ("s",),
    "gymnasium.envs.toy_text.taxi:TaxiEnv": ("s", "fickle_step"),
    "gymnasium.envs.toy_text.blackjack:BlackjackEnv": ("player", "dealer"),
}
"""Attributes that change from step to step in Gymnasium's own environments, besides the random generator."""
WRAPPERS: Mapping[type, tuple[str, ...]] = {
    TimeLimit: ("_elapsed_steps",),
    OrderEnforcing: (),
    PassiveEnvChecker: (),
    RepeatAction: (),
}
"""Wrapper attributes that change from step to step. An environment inside any other wrapper cannot be saved."""
GENERATOR = "np_random"
JSON = ".json"


def environment_state(environment: Any) -> State:
    """Return the state of a Gymnasium or PettingZoo environment. Raise NotResumable if it cannot be saved."""
    *wrappers, inner = _layers(environment)
    names = _attributes(inner)
    try:
        own = inner.save_state() if names is None else _encoded(inner, names)
        state = under("own", {key: np.array(value) for key, value in own.items()})
    except Exception as error:
        raise NotResumable(f"save_state of {type(inner).__name__} failed: {error!r}") from error
    for number, wrapper in enumerate(wrappers):
        state |= under(f"wrapper/{number}", _encoded(wrapper, WRAPPERS[type(wrapper)]))
    if (generator := _generator(inner)) is not None:
        state[GENERATOR] = generator_state(generator)
    return state


def restore_environment(environment: Any, state: State) -> None:
    """Restore a saved state into an environment that was just made and reset."""
    *wrappers, inner = _layers(environment)
    own = part(state, "own")
    if (names := _attributes(inner)) is None:
        inner.restore_state(own)
    else:
        _decode(inner, names, own)
    for number, wrapper in enumerate(wrappers):
        _decode(wrapper, WRAPPERS[type(wrapper)], part(state, f"wrapper/{number}"))
    if (generator := _generator(inner)) is not None and GENERATOR in state:
        restore_generator(generator, state[GENERATOR])


def _attributes(environment: Any) -> tuple[str, ...] | None:
    """Return the attributes to save, or None if the environment saves itself."""
    kind = type(environment)
    if (names := ATTRIBUTES.get(f"{kind.__module__}:{kind.__qualname__}")) is not None:
        return names
    if isinstance(environment, ResumableEnvironment):
        return None
    raise NotResumable(
        f"{kind.__name__} cannot be saved in the middle of an episode; it would need methods `save_state` and "
        "`restore_state`"
    )


def _layers(environment: Any) -> list[Any]:
    """Return the known wrappers around an environment, outermost first, then the environment."""
    layers = [environment]
    while type(layers[-1]) in WRAPPERS:
        layers.append(layers[-1].env)
    return layers


def _generator(environment: Any) -> np.random.Generator | None:
    """Return a Gymnasium environment's random generator. PettingZoo environments need none: each episode is seeded."""
    if not isinstance(environment, (gymnasium.Env, gymnasium.vector.VectorEnv)):
        return None
    return environment.np_random if isinstance(environment.np_random, np.random.Generator) else None


def _encoded(owner: Any, names: tuple[str, ...]) -> dict[str, Array]:
    """Return attributes: arrays and NumPy numbers as arrays, others as JSON under names that end in `.json`."""
    state: dict[str, Array] = {}
    for name in names:
        value = vars(owner).get(name)
        if isinstance(value, (np.ndarray, np.generic)):
            state[name] = np.array(value)
        else:
            items = [plain(item) for item in value] if isinstance(value, (list, tuple)) else value
            state[f"{name}{JSON}"] = pack(items)
    return state


def _decode(owner: Any, names: tuple[str, ...], state: State) -> None:
    for key, value in state.items():
        if key.removesuffix(JSON) not in names:
            raise NotResumable(f"the saved state of {type(owner).__name__} has an unknown attribute {key!r}")
        if key.endswith(JSON):
            setattr(owner, key.removesuffix(JSON), unpack(value))
        else:
            setattr(owner, key, value.copy() if value.ndim else value[()])
