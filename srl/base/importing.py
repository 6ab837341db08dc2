"""Objects by name: `package.module:name` or `path/file.py:name`, and the name of what others can import."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from srl.base.errors import nearest

FILE_MODULE_PREFIX = "srl_file_"


def load_object(name: str) -> Any:
    """The object that `name` names; importing is all that happens to find it.

    A file is imported once per process, under a name made of its path, so that the classes inside keep their identity
    and can be named again by :func:`name_of`.
    """
    source, separator, attribute = name.rpartition(":")
    if not separator or not source or not attribute:
        raise ValueError(f"{name!r} names no object; write 'package.module:name' or 'path/file.py:name'")
    module = _load_file(source) if source.endswith(".py") else _load_module(source)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [key for key in vars(found) if not key.startswith("_")] if hasattr(found, "__dict__") else []
            raise ValueError(f"{source} has no {attribute!r}{nearest(part, names)}")
        found = getattr(found, part)
    return found


def name_of(thing: Any) -> str:
    """The name under which another process finds this class or function; ValueError where it would not."""
    name, source = getattr(thing, "__qualname__", ""), getattr(thing, "__module__", None)
    if not name or "<" in name or source is None:
        raise ValueError(
            f"{name or repr(thing)} has no name by which worker processes could import it: define it at the top of a "
            "module or script (no lambda, nothing inside of a function)"
        )
    if source == "__main__" or source.startswith(FILE_MODULE_PREFIX):
        module = sys.modules.get(source)
        spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        if source == "__main__" and spec is not None:
            source = spec.name
        elif file is not None:
            source = os.path.abspath(file)
        else:
            raise ValueError(f"{name} was typed into a prompt, where workers cannot find it; put it in a file")
    return f"{source}:{name}"


def _load_module(name: str) -> ModuleType:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if main is not None and spec is not None and spec.name == name:
        return main
    if name in sys.modules:
        return sys.modules[name]
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # an installed command does not look beside the user, `python -m` does
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if not (name == missing or name.startswith(f"{missing}.")):
            raise ValueError(f"cannot import {name}: it needs {missing!r}, which is not installed") from error
        parent, _, last = missing.rpartition(".")
        raise ValueError(f"no module {missing!r}{nearest(last, _siblings(parent))}") from error


def _siblings(package: str) -> list[str]:
    """The modules of a package, or what lies beside the user; the whole search path would only confuse."""
    import pkgutil

    paths = list(sys.modules[package].__path__) if package in sys.modules else [os.getcwd()]
    return [module.name for module in pkgutil.iter_modules(paths)]


def _load_file(source: str) -> ModuleType:
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        beside = [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ValueError(f"no file {source} (looked at {path}){nearest(path.name, beside) if beside else ''}")
    main = sys.modules.get("__main__")
    main_file = getattr(main, "__file__", None)
    if main is not None and main_file is not None and Path(main_file).resolve() == path:
        return main
    name = FILE_MODULE_PREFIX + "".join(c if c.isalnum() else "_" for c in path.stem)
    name += "_" + hashlib.sha256(str(path).encode()).hexdigest()[:12]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported as Python")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # as for a script: its neighbors can be imported
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
