"""PettingZoo configs: lookup by name, and the choice between parallel and turn-based versions."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from srl.api.lanes import Lanes, named_texts
from srl.base.errors import nearest
from srl.environments.adapters.agent_ids import with_agent_ids
from srl.environments.adapters.masks import MASK_KEY
from srl.environments.factories import NamedConfig, locate
from srl.environments.pettingzoo.aec import TurnGame
from srl.environments.pettingzoo.lanes import PettingZooLanes
from srl.environments.pettingzoo.parallel import ParallelGame

PREFIX = "pettingzoo:"
TURNS, STATE = "turns", "state"
FAMILIES = ("atari", "butterfly", "classic", "magent", "mpe", "sisl")
OWN_GAME = re.compile(rf"({'|'.join(FAMILIES)})\.[a-z0-9_]+_v\d+")
# Families that left PettingZoo: their current module, and the package that installs it.
MOVED = {"mpe": ("mpe2", "mpe2"), "magent": ("magent2.environments", "magent2")}


@dataclass(frozen=True)
class PettingZooConfig(NamedConfig):
    """A PettingZoo environment, `classic.tictactoe_v3`, or a function that returns one, `package.module:function`.

    Either name may have the prefix `pettingzoo:`, which :func:`srl.environments.registry.lanes_config` requires.
    `kwargs` are the environment's options and two of ours: ``turns=True`` uses the turn-based version (AEC) if both
    exist; ``state=True`` adds the state of the whole game to every observation, under the key `state`, for a
    centralized critic.
    """

    mask_key: str = MASK_KEY
    log_info: tuple[str, ...] = ()
    """Scalars in the last infos of episodes that are statistics of them, in addition to `is_success`."""
    agent_ids: bool = False
    """Add each agent's number to its observation."""

    def named_code(self) -> tuple[str, ...]:
        path = self.name.removeprefix(PREFIX).removeprefix("pettingzoo.")
        return (*(() if OWN_GAME.fullmatch(path) else (self.name,)), *named_texts(self.kwargs))

    def build(self, num_copies: int) -> Lanes:
        return self._numbered(lanes_of(self.name, self.make, num_copies, self.mask_key, self.log_info))

    def _numbered(self, lanes: Lanes) -> Lanes:
        return with_agent_ids(lanes) if self.agent_ids else lanes

    def build_rendered(self) -> Lanes:
        """Make one copy that renders frames."""
        rendered = replace(self, kwargs={**self.kwargs, "render_mode": "rgb_array"})
        try:
            return self._numbered(lanes_of(self.name, rendered.make, 1, self.mask_key))
        except TypeError as error:
            raise ValueError(f"{self.name} cannot be recorded with render_mode='rgb_array': {error}") from error

    def make(self) -> Any:
        """Make one bare ParallelEnv or AECEnv."""
        if importlib.util.find_spec("pettingzoo") is None:
            raise ImportError(f"{self.name} needs PettingZoo, which is not installed: pip install 'srl-rl[pettingzoo]'")
        options = dict(self.kwargs)
        turns, state = bool(options.pop(TURNS, False)), bool(options.pop(STATE, False))
        environment = _maker(self.name, turns)(**options)
        if not is_pettingzoo(environment):
            raise TypeError(
                f"{self.name} returned {type(environment).__name__}, expected a pettingzoo.ParallelEnv or AECEnv"
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

    def with_log_info(self, names: tuple[str, ...]) -> PettingZooConfig:
        return replace(self, log_info=names)

    def with_global_state(self) -> PettingZooConfig:
        """Return the same config with ``state=True``, unless its options already set `state`."""
        return self if STATE in self.kwargs else replace(self, kwargs={**self.kwargs, STATE: True})

    def with_agent_ids(self) -> PettingZooConfig:
        return replace(self, agent_ids=True)


def lanes_of(
    name: str,
    make: Callable[[], Any],
    num_copies: int,
    mask_key: str = MASK_KEY,
    log_info: tuple[str, ...] = (),
) -> PettingZooLanes:
    """Return lanes whose copies `make` creates; `name` appears in messages."""
    environment = make()
    parallel = is_parallel(environment)
    game = ParallelGame if parallel else TurnGame
    return PettingZooLanes(name, make, game, parallel, environment, num_copies, mask_key, log_info)


def is_parallel(environment: Any) -> bool:
    from pettingzoo import ParallelEnv

    return isinstance(environment, ParallelEnv)


def is_pettingzoo(environment: Any) -> bool:
    if importlib.util.find_spec("pettingzoo") is None:
        return False
    from pettingzoo import AECEnv, ParallelEnv

    return isinstance(environment, (AECEnv, ParallelEnv))


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
    """Import a module from `pettingzoo`, from the package that its family has moved to, or by its full name."""
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
    """Import without deprecation warnings: PettingZoo prefers a registry that not all supported versions have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(module)


def _has_module(family: str, name: str) -> bool:
    try:
        return importlib.util.find_spec(f"pettingzoo.{family}.{name}") is not None
    except ImportError:
        return False


def _nearest(path: str, package: str) -> str:
    """Return a suggestion of the nearest names, to end a message about a module that does not exist."""
    family, _, rest = path.partition(".")
    if not rest or not _importable(package):
        families = [f"{one}.{path}" for one in FAMILIES if _has_module(one, path)]
        return f"; did you mean {' or '.join(map(repr, families))}?" if families else nearest(family, FAMILIES)
    known = [module.name for module in pkgutil.iter_modules(importlib.import_module(package).__path__)]
    return nearest(path, [f"{family}.{name}" for name in known if re.search(r"_v\d+$", name)])
