"""Imports only point down, and the unsafe loaders are nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from srl.base.object_names import PARTS

PACKAGE = Path(__file__).parent.parent / "srl"

# A package may import itself and what is listed for it.
FOUNDATION = {"base", "api"}
DATA_PLANE = FOUNDATION | {"transports", "names", "streams", "parameters"}
RUNTIME = DATA_PLANE | {"workers", "schedulers", "controller"}
LEARNING = {"networks", "algorithms", "environments", "populations"}
MAY_IMPORT = {
    "base": set(),
    "api": {"base"},
    "transports": FOUNDATION,
    "names": FOUNDATION | {"transports"},
    "streams": FOUNDATION | {"transports", "names"},
    "parameters": FOUNDATION | {"transports", "names", "streams"},
    "workers": DATA_PLANE,
    "schedulers": DATA_PLANE | {"workers"},
    "controller": DATA_PLANE | {"workers", "schedulers"},
    "networks": FOUNDATION,
    "algorithms": FOUNDATION | {"networks"},
    "environments": FOUNDATION,
    "populations": FOUNDATION | {"environments"},
    "storage": FOUNDATION,
    "terminal": FOUNDATION | {"storage"},
    "testing": DATA_PLANE | {"environments", "workers"},
    "experiments": RUNTIME | LEARNING | {"storage", "results", "terminal"},
    "results": RUNTIME | LEARNING | {"storage", "experiments", "terminal"},
    "bench": RUNTIME | LEARNING | {"storage", "experiments", "results", "testing"},
    "checks": RUNTIME | LEARNING | {"storage", "experiments", "results", "testing"},
    "cli": RUNTIME | LEARNING | {"storage", "experiments", "results", "bench", "checks", "terminal", "testing"},
}
UNSAFE_MODULES = {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "yaml", "joblib", "jsonpickle"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.jit.load", "torch.package", "os.system"}


@cache
def modules() -> list[tuple[str, Path, ast.Module]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        package = relative.parts[0] if len(relative.parts) > 1 else ""
        found.append((package, path, ast.parse(path.read_text())))
    return found


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_stands_below_it(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for own, path, tree in modules()
        if own == package
        for name in imports(tree)
        if name.startswith("srl.") and name.split(".")[1] not in allowed
    ]
    assert wrong == []


def test_every_package_has_its_place_in_the_layers() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert packages == set(MAY_IMPORT)


def test_torch_is_imported_by_the_learning_side_only() -> None:
    users = {
        package
        for package, path, tree in modules()
        if any(name.split(".")[0] == "torch" for name in imports(tree)) and path.name != "doctor.py"
    }
    assert users <= {"networks", "algorithms"}


def test_the_contracts_need_numpy_and_msgspec_only() -> None:
    foreign = {name.split(".")[0] for package, _, tree in modules() if package == "api" for name in imports(tree)}
    allowed = {"__future__", "abc", "collections", "dataclasses", "typing", "numpy", "msgspec", "srl"}
    assert foreign <= allowed


def test_nothing_unpickles_or_evaluates_data() -> None:
    found = []
    for _, path, tree in modules():
        where = path.relative_to(PACKAGE)
        found += [f"{where}: {name}" for name in imports(tree) if name.split(".")[0] in UNSAFE_MODULES]
        found += [
            f"{where}: from torch import {alias.name}"  # under another name it would not be found below
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "torch"
            for alias in node.names
            if alias.name == "load"
        ]
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in UNSAFE_CALLS or called.endswith("yaml.load"):
                found.append(f"{where}:{node.lineno}: {called}")
            found += [
                f"{where}:{node.lineno}: {keyword.arg}"
                for keyword in node.keywords
                if keyword.arg in ("allow_pickle", "weights_only", "shell")
            ]
    assert found == []


def test_short_names_of_parts_point_to_existing_classes() -> None:
    """Moving a class means to change its path in srl/base/object_names.py; saved runs keep working."""
    defined = {
        f"{'.'.join(('srl', *path.relative_to(PACKAGE).with_suffix('').parts))}:{node.name}"
        for _, path, tree in modules()
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    assert set(PARTS.values()) - defined == set()


def test_files_stay_small() -> None:
    long = [
        f"{path.relative_to(PACKAGE)}: {n}" for _, path, _ in modules() if (n := path.read_text().count("\n")) > 400
    ]
    assert long == []
