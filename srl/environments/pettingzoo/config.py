"""PettingZoo environments as lanes: how they are named, found and told apart."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from srl.api.lanes import Lanes, LanesConfig
from srl.base.errors import nearest
from srl.environments.adapters.masks import MASK_KEY
from srl.environments.factories import locate
from srl.environments.pettingzoo.aec import TurnGame
from srl.environments.pettingzoo.lanes import PettingZooLanes
from srl.environments.pettingzoo.parallel import ParallelGame

PREFIX = "pettingzoo:"
TURNS, STATE = "turns", "state"
FAMILIES = ("atari", "butterfly", "classic", "magent", "mpe", "sisl")
# Families that left PettingZoo: where their modules live now, and what installs them.
MOVED = {"mpe": ("mpe2", "mpe2"), "magent": ("magent2.environments", "magent2")}


@dataclass(frozen=True)
class PettingZooConfig(LanesConfig):
    """`classic.tictactoe_v3`, or `package.module:function`, a function that returns an environment.

    Both may have `pettingzoo:` before them, by which :func:`srl.environments.registry.lanes_config` knows them.
    """

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment. Two are ours: ``turns=True`` takes turns (AEC) where both ways are offered;
    ``state=True`` shows every agent a part `state` of the whole game, for a critic that may know it."""
    mask_key: str = MASK_KEY

    def environment_name(self) -> str:
        return self.name

    def build(self, num_copies: int) -> Lanes:
        return lanes_of(self.name, self.make, num_copies, self.mask_key)

    def build_rendered(self) -> PettingZooLanes:
        """One copy that draws itself."""
        filmed = replace(self, kwargs={**self.kwargs, "render_mode": "rgb_array"})
        try:
            return lanes_of(self.name, filmed.make, 1, self.mask_key)
        except TypeError as error:
            raise ValueError(f"{self.name} cannot be filmed with render_mode='rgb_array': {error}") from error

    def make(self) -> Any:
        """One bare ParallelEnv or AECEnv."""
        _need_pettingzoo(self.name)
        options = dict(self.kwargs)
        turns, state = bool(options.pop(TURNS, False)), bool(options.pop(STATE, False))
        environment = _maker(self.name, turns)(**options)
        if not is_pettingzoo(environment):
            raise TypeError(
                f"{self.name} gave a {type(environment).__name__}; wanted a pettingzoo.ParallelEnv or AECEnv"
            )
        if turns and is_parallel(environment):
            from pettingzoo.utils.conversions import parallel_to_aec

            environment = parallel_to_aec(environment)
        if state:
            from srl.environments.pettingzoo.global_state import ParallelWithState, TurnsWithState

            return (ParallelWithState if is_parallel(environment) else TurnsWithState)(environment, self.mask_key)
        return environment

    def with_mask_key(self, key: str) -> PettingZooConfig:
        return replace(self, mask_key=key)

    def with_global_state(self) -> PettingZooConfig:
        """The same, showing the state, unless its options say otherwise."""
        return self if STATE in self.kwargs else replace(self, kwargs={**self.kwargs, STATE: True})


def lanes_of(name: str, make: Callable[[], Any], num_copies: int, mask_key: str = MASK_KEY) -> PettingZooLanes:
    """Lanes of what `make` makes; `name` stands in messages."""
    environment = make()
    if is_parallel(environment):
        return PettingZooLanes(name, make, ParallelGame, True, environment, num_copies, mask_key)
    return PettingZooLanes(name, make, TurnGame, False, environment, num_copies, mask_key)


def is_parallel(environment: Any) -> bool:
    from pettingzoo import ParallelEnv

    return isinstance(environment, ParallelEnv)


def is_pettingzoo(environment: Any) -> bool:
    if importlib.util.find_spec("pettingzoo") is None:
        return False
    from pettingzoo import AECEnv, ParallelEnv

    return isinstance(environment, (AECEnv, ParallelEnv))


def _need_pettingzoo(name: str) -> None:
    if importlib.util.find_spec("pettingzoo") is None:
        raise ImportError(f"{name} needs PettingZoo, which is not installed: pip install 'srl[pettingzoo]'")


def _maker(name: str, turns: bool) -> Callable[..., Any]:
    path = name.removeprefix(PREFIX)
    if ":" in path:
        return locate(path)
    module = _import_module(path.removeprefix("pettingzoo."))
    order = ("env", "raw_env") if turns else ("parallel_env", "env", "raw_env")
    for function in order:
        if hasattr(module, function):
            maker: Callable[..., Any] = getattr(module, function)
            return maker
    raise ValueError(f"{module.__name__} offers none of {', '.join(order)}; name a function: {path}:function")


def _import_module(path: str) -> ModuleType:
    """The module below `pettingzoo`, or below the package that its family has moved to, or anywhere."""
    family, _, rest = path.partition(".")
    package, install = f"pettingzoo.{family}", f"'pettingzoo[{family}]'"
    if family in MOVED and not _importable(package):
        package, install = MOVED[family]
    elif importlib.util.find_spec(package) is None:
        package, install = family, family
    module = f"{package}.{rest}" if rest else package
    try:
        return _import_quietly(module)
    except ModuleNotFoundError as error:
        if error.name in (module, family):
            raise ImportError(f"PettingZoo has no {path!r}{_nearest(path, package)}") from error
        raise ImportError(
            f"{PREFIX}{path} needs {error.name}, which is not installed: pip install {install}"
        ) from error


def _importable(module: str) -> bool:
    try:
        _import_quietly(module)
    except ImportError:
        return False
    return True


def _import_quietly(module: str) -> ModuleType:
    """PettingZoo deprecates its modules in favor of a registry, which its supported versions do not all have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(module)


def _nearest(path: str, package: str) -> str:
    """The end of a message about a module that is not there."""
    family, _, rest = path.partition(".")
    if not rest or not _importable(package):
        return nearest(family, FAMILIES)
    known = [module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    return nearest(path, [f"{family}.{name}" for name in known if re.search(r"_v\d+$", name)])
