"""Functions by name: `package.module:function` or `path/to/file.py:function`, and the name of a function."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from srl.base.nearest import nearest

Factory = Callable[..., Any]


def locate(name: str) -> Factory:
    """The function or class called `name`; ValueError where it cannot be found."""
    place, _, qualname = name.rpartition(":")
    if not place or not qualname:
        raise ValueError(f"{name!r} does not name a function; write package.module:function or path/file.py:function")
    found: Any = _module(place)
    for part in qualname.split("."):
        if not hasattr(found, part):
            public = [key for key in vars(found) if not key.startswith("_")]
            raise ValueError(f"{place} has no {qualname!r}{nearest(part, public)}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"{name} is {type(found).__name__}, not a function that makes an environment")
    factory: Factory = found
    return factory


def _module(place: str) -> ModuleType:
    if place.endswith(".py"):
        return _file(str(Path(place).expanduser().resolve()))
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # A console script does not see the modules of the current directory.
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not (place == error.name or place.startswith(f"{error.name}.")):
            raise  # The module is there, something that it imports is not.
        raise ValueError(f"no module named {error.name!r}, wanted for {place!r}; searched {Path.cwd()} too") from error


@functools.cache
def _file(path: str) -> ModuleType:
    main = sys.modules.get("__main__")
    if main is not None and getattr(main, "__file__", None) and Path(str(main.__file__)).resolve() == Path(path):
        return main  # The script that is running need not be run a second time.
    if not Path(path).is_file():
        raise ValueError(f"no file {path}")
    name = f"{Path(path).stem}_{hashlib.sha1(path.encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses and pickles of the file look their module up.
    if (folder := str(Path(path).parent)) not in sys.path:
        sys.path.append(folder)  # As for a script: files beside it can be imported.
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def name_of(function: Factory) -> str:
    """The name by which another process finds `function`; ValueError where none would."""
    qualname, module = getattr(function, "__qualname__", ""), getattr(function, "__module__", None)
    if not qualname or "<" in qualname or module is None:
        raise ValueError(
            f"{function!r} has no name of its own: worker processes must be able to import it. "
            "Define it at the top level of a module or script (no lambda, no function in a function)"
        )
    if module != "__main__":
        return f"{module}:{qualname}"
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise ValueError(f"{qualname} lives in an interactive session, where worker processes cannot import it: "
                         "put it in a file")  # fmt: skip
    return f"{Path(path).resolve()}:{qualname}"


def parameters_of(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """A factory's parameters by name; none where they cannot be known."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}


def check_options(environment: str, factory: Factory, options: Mapping[str, Any], *also: str) -> None:
    """Complain about options that `factory` does not take; `also` are taken before they reach it."""
    parameters = parameters_of(factory)
    if not parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = list(dict.fromkeys((*parameters, *also)))
    for option in options:
        if option not in known:
            raise ValueError(f"environment {environment} has no option {option!r}{nearest(option, known)}")
