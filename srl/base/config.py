"""Conversion of configs (frozen dataclasses) to plain data for files and messages, and back.

A dataclass becomes `{"type": NAME, "fields": {...}}`, where NAME is a short name from :mod:`srl.base.object_names` or
`package.module:Class`. A value that JSON cannot express becomes `{"type": "tuple" | "path" | "float" | "dict",
"value": ...}`, unless the type hint of its field already determines its type. Nothing is ever unpickled.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from srl.base.errors import nearest
from srl.base.object_names import load_part, part_name

NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_data(config: Any) -> Any:
    """Return `config` as dictionaries, lists, strings, numbers, booleans and None."""
    return _encode(config, Any, "config")


def from_data(data: Any) -> Any:
    """Rebuild a config converted by :func:`to_data`, importing the modules of the classes it names."""
    return _decode(data, Any, "config")


def is_config(data: Any) -> bool:
    """Return whether data looks like a dataclass converted by :func:`to_data`."""
    return isinstance(data, Mapping) and set(data) == {"type", "fields"} and isinstance(data["fields"], Mapping)


def _encode(value: Any, hint: Any, path: str) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        names = [field.name for field in dataclasses.fields(value) if field.init]
        fields = {name: _encode(getattr(value, name), hints[name], f"{path}.{name}") for name in names}
        return {"type": part_name(type(value)), "fields": fields}
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int)) or type(value) is str:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _tagged("float", str(value), _means(hint, float))
    if isinstance(value, PurePath):
        return _tagged("path", str(value), _means(hint, Path))
    if isinstance(value, tuple):
        items = [_encode(v, h, f"{path}[{i}]") for i, (v, h) in enumerate(_pair(value, hint, tuple))]
        return _tagged("tuple", items, _member(hint, tuple) is not None and _member(hint, list) is None)
    if isinstance(value, list):
        return [_encode(v, h, f"{path}[{i}]") for i, (v, h) in enumerate(_pair(value, hint, list))]
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise TypeError(f"{path}: dictionary keys must be strings, found {wrong!r}")
        inner = _value_hint(hint)
        encoded = {key: _encode(item, inner, f"{path}[{key!r}]") for key, item in value.items()}
        return _tagged("dict", encoded, "type" not in encoded)
    raise TypeError(
        f"{path}: cannot serialize a {type(value).__name__}; use a dataclass, a plain value, or the name of an object "
        f"as 'package.module:name'"
    )


def _decode(data: Any, hint: Any, path: str) -> Any:
    if isinstance(data, list):
        if _member(hint, tuple) is not None and _member(hint, list) is None:
            return tuple(_decode(v, h, f"{path}[{i}]") for i, (v, h) in enumerate(_pair(data, hint, tuple)))
        return [_decode(v, h, f"{path}[{i}]") for i, (v, h) in enumerate(_pair(data, hint, list))]
    if isinstance(data, str):
        if data in NON_FINITE and _means(hint, float):
            return NON_FINITE[data]
        return Path(data) if _means(hint, Path) else data
    if not isinstance(data, dict):
        return data
    if "type" not in data:
        inner = _value_hint(hint)
        return {key: _decode(item, inner, f"{path}[{key!r}]") for key, item in data.items()}
    if set(data) == {"type", "fields"} and isinstance(data["type"], str) and isinstance(data["fields"], dict):
        return _decode_dataclass(data["type"], data["fields"], path)
    if set(data) == {"type", "value"}:
        return _decode_tagged(data["type"], data["value"], hint, path)
    raise ValueError(f"{path}: expected 'type' with 'fields' or 'value', found the keys {sorted(data)}")


def _decode_tagged(kind: Any, value: Any, hint: Any, path: str) -> Any:
    if kind == "float" and value in NON_FINITE:
        return NON_FINITE[value]
    if kind == "path" and isinstance(value, str):
        return Path(value)
    if kind == "tuple" and isinstance(value, list):
        return tuple(_decode(v, h, f"{path}[{i}]") for i, (v, h) in enumerate(_pair(value, hint, tuple)))
    if kind == "dict" and isinstance(value, dict):
        inner = _value_hint(hint)
        return {key: _decode(item, inner, f"{path}[{key!r}]") for key, item in value.items()}
    raise ValueError(f"{path}: cannot read {value!r} as type {kind!r}; valid types are float, path, tuple and dict")


def _decode_dataclass(name: str, data: dict[str, Any], path: str) -> Any:
    try:
        kind = load_part(name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{path}: {name} is not a dataclass")
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for key in data:
        if key not in fields:
            raise ValueError(f"{path}: {kind.__name__} has no field {key!r}{nearest(key, fields)}")
    for field in fields.values():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in data:
            raise ValueError(f"{path}: {kind.__name__} requires the field {field.name!r}, which is missing")
    hints = _hints(kind)
    return kind(**{key: _decode(value, hints[key], f"{path}.{key}") for key, value in data.items()})


def _tagged(kind: str, plain: Any, obvious: bool) -> Any:
    """Return `plain` with its type, or without it if the reader knows the type from the field's hint."""
    return plain if obvious else {"type": kind, "value": plain}


@cache
def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except (NameError, AttributeError, TypeError):
        # Some names are imported only for type checkers; such fields are decoded without hints.
        return dict.fromkeys((field.name for field in dataclasses.fields(kind)), Any)


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the hint itself if it is not a union."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(inner for member in typing.get_args(hint) for inner in _members(member))
    return (hint,)


def _member(hint: Any, origin: type) -> Any:
    """Return the member of the hint that is `origin` or `origin[...]`."""
    return next((m for m in _members(hint) if (typing.get_origin(m) or m) is origin), None)


def _means(hint: Any, kind: type) -> bool:
    """Return whether a string in a field with this hint always stands for a `kind`."""
    plain = {str, float, Path} - {kind}
    members = _members(hint)
    return kind in members and not any(m in plain or typing.get_origin(m) is typing.Literal for m in members)


def _pair(values: Any, hint: Any, origin: type) -> list[tuple[Any, Any]]:
    """Pair each value with the type hint of its position in a tuple or list."""
    arguments = typing.get_args(_member(hint, origin))
    if origin is tuple and arguments and arguments[-1] is not Ellipsis and len(arguments) == len(values):
        return list(zip(values, arguments, strict=True))
    homogeneous = len(arguments) == 1 or (len(arguments) == 2 and arguments[1] is Ellipsis)
    return [(value, arguments[0] if homogeneous else Any) for value in values]


def _value_hint(hint: Any) -> Any:
    for member in _members(hint):
        origin = typing.get_origin(member)
        if isinstance(origin, type) and issubclass(origin, Mapping) and len(typing.get_args(member)) == 2:
            return typing.get_args(member)[1]
    return Any
