"""Saved runs name SRL's own classes by short names, so that classes can move."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.api.experiment import Resources
from srl.base import object_names
from srl.base.config import from_data, to_data
from srl.base.object_names import NAMES, PARTS, load_object, load_part, name_of, part_name, refuse_private_code

OWN_PATH = re.compile(rb'"srl\.[\w.]+:\w+"')


def config_classes() -> set[type]:
    """Return all dataclasses of the package with a method `build...`, the spaces, and what is in their fields."""
    found: set[type] = set()
    for module in pkgutil.walk_packages(srl.__path__, "srl."):
        if not module.name.endswith("__main__"):
            for kind in vars(importlib.import_module(module.name)).values():
                is_own = inspect.isclass(kind) and kind.__module__ == module.name and dataclasses.is_dataclass(kind)
                builds = any(hasattr(kind, name) for name in ("build", "build_policy"))
                if is_own and (builds or module.name == "srl.api.spaces" or kind.__name__ == "TrainOptions"):
                    _add(kind, found)
    return {kind for kind in found if not inspect.isabstract(kind) and not _is_base(kind, found)}


def _add(hint: Any, found: set[type]) -> None:
    for part in _parts(hint):
        if inspect.isclass(part) and dataclasses.is_dataclass(part) and part not in found:
            found.add(part)
            for inner in typing.get_type_hints(part).values():
                _add(inner, found)


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for argument in typing.get_args(hint):
        yield from _parts(argument)


def _is_base(kind: type, found: set[type]) -> bool:
    """Return whether only the subclasses of `kind` are used."""
    return not hasattr(kind, "build") and any(other is not kind and issubclass(other, kind) for other in found)


def test_each_config_class_has_a_short_name() -> None:
    unnamed = {f"{kind.__module__}:{kind.__qualname__}" for kind in config_classes()} - set(NAMES)
    assert unnamed == set(), "add them to srl/base/object_names.py"


def test_each_name_resolves_to_one_object() -> None:
    for name, path in PARTS.items():
        found = load_part(name)
        assert f"{found.__module__}:{found.__qualname__}" == path
        assert part_name(found) == name
        assert ":" not in name


def test_parts_with_default_fields_round_trip_through_json() -> None:
    tried = 0
    for name in PARTS:
        kind = load_part(name)
        if (
            isinstance(kind, type)
            and dataclasses.is_dataclass(kind)
            and not any(_is_required(field) for field in dataclasses.fields(kind))
        ):
            data = json.loads(json.dumps(to_data(kind())))
            assert data["type"] == name
            assert from_data(data) == kind()
            tried += 1
    assert tried >= 10


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def test_no_object_has_two_names() -> None:
    assert len(NAMES) == len(PARTS)


def test_a_class_of_srl_without_a_name_is_not_written() -> None:
    with pytest.raises(ValueError, match=r"srl\.api\.experiment:Resources has no short name"):
        to_data(Resources())


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no SRL component is named 'atary'; did you mean 'atari'\?"):
        load_part("atary")


def test_the_files_of_a_run_contain_no_module_path_of_srl(tmp_path: Path) -> None:
    options: dict[str, Any] = {"steps": 256, "scheduler": "inline", "actors": 1, "lanes": 2, "horizon": 16}
    run = srl.train("CartPole-v1", **options, eval_every=1, root=tmp_path)
    texts = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert any(path.name == "facts.json" for path in texts)
    assert b'"vector"' in texts[run.path / "config.json"]
    assert {path: OWN_PATH.findall(text) for path, text in texts.items() if OWN_PATH.search(text)} == {}


def test_what_was_defined_at_a_prompt_is_found_in_this_process_and_refused_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Prompt:
        """Stands for a class that a notebook defines."""

    Prompt.__module__, Prompt.__qualname__ = "__main__", "Prompt"
    main = types.ModuleType("__main__")
    main.Prompt = Prompt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert name_of(Prompt) == "__main__:Prompt"
    assert load_object("__main__:Prompt") is Prompt
    refuse_private_code({"type": "gymnasium", "fields": {"id": "CartPole-v1", "kwargs": [1, None]}})
    with pytest.raises(ValueError, match=r'Prompt was defined at a prompt.*"path/file.py:Prompt".*scheduler="inline"'):
        refuse_private_code({"fields": {"factory": ["x", "__main__:Prompt"]}})


def test_a_lambda_and_what_a_function_defines_are_found_in_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def inner() -> None: ...

    names = [name_of(inner), name_of(lambda: None), name_of(partial(int, "3"))]
    assert names[0] == name_of(inner)  # of the same object
    assert len({*names, name_of(lambda: None)}) == 4
    assert load_object(names[0]) is inner
    assert load_object(names[2])() == 3
    for name, begin in zip(
        names, ("inner was defined inside a func", "a lambda has no name", "a partial has"), strict=True
    ):
        with pytest.raises(ValueError, match=begin):
            refuse_private_code(["x", {"factory": name}])
    monkeypatch.setattr(object_names, "_LOCAL", {})  # as in another process
    with pytest.raises(ValueError, match=r"was a lambda or was defined inside a function .* pass the environment"):
        load_object(names[0])
