"""Conversion of configs (frozen dataclasses) to plain data for files and messages, and back.

A dataclass becomes `{"type": NAME, "fields": {...}}`, where NAME is a short name from :mod:`srl.base.object_names` or
`package.module:Class`. A value that JSON cannot express becomes `{"type": "tuple" | "path" | "float" | "dict",
"value": ...}`, unless the type hint of its field already determines its type. Nothing is ever unpickled.

Messages between the processes of a run are read by :func:`from_data`, which imports the classes they name. Files are
read by :func:`from_file`, which builds only SRL's own types unless the user trusts the file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import numpy as np

from srl.base.errors import nearest
from srl.base.object_names import PARTS, load_part, name_of, part_name

NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
MAX_INTEGER = 2**63
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
MAX_SHOWN = 200  # characters of a name from a file in a message

TrustCode: TypeAlias = bool | Sequence[Callable[..., Any]]
"""Permission to run code that a file names: all of it, none, or only these functions and classes."""


class UntrustedCode(ValueError):
    """A file names code or services outside of SRL, and the user has not allowed them."""


def to_data(config: Any) -> Any:
    """Return `config` as dictionaries, lists, strings, numbers, booleans and None."""
    return _encode(config, Any, "config")


def from_data(data: Any) -> Any:
    """Rebuild a config converted by :func:`to_data` in a process of the same run, importing the classes it names."""
    return _Decoder(trusted=True).decode(data, Any, "config")


def from_file(data: Any, kinds: Mapping[str, Any], place: str, trust_code: TrustCode = False) -> dict[str, Any]:
    """Rebuild the configs under the keys `kinds` of a file's content; the values of `kinds` are their types.

    Unless the code is trusted, builds only SRL's own types, and raises UntrustedCode with everything else that the
    configs would import, run or connect to (`named_code`). Functions and classes in `trust_code` take the place of
    those that have the same name in the file. Raises ValueError for values that do not fit the types of their fields.
    """
    passed = _passed(trust_code)
    decoder = _Decoder(trust_code is True, frozenset(passed.values()), checked=True)
    if not isinstance(data, Mapping):
        raise ValueError(f"{place} must contain {', '.join(kinds)}; found a {type(data).__name__}")
    found = {}
    for key, kind in kinds.items():
        if key not in data:
            raise ValueError(f"{place} has no {key!r}")
        try:
            found[key] = decoder.decode(_renamed(data[key], passed) if passed else data[key], kind, key)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
        except RecursionError:
            raise ValueError(f"{place}: {key} is nested too deeply") from None
    refuse_code(decoder.outside, place, trust_code)
    return found


def refuse_code(names: Sequence[str], place: str, trust_code: TrustCode) -> None:
    """Raise UntrustedCode if the file `place` names code or services outside of SRL that are not trusted."""
    untrusted = [] if trust_code is True else [name for name in names if name not in _passed(trust_code).values()]
    if untrusted:
        raise UntrustedCode(
            f"{place} names code or services outside of SRL: {', '.join(dict.fromkeys(untrusted))}. SRL uses them only "
            "if you trust this file: add --trust-code (in Python: trust_code=True, or trust_code=[...] with your "
            "functions and classes)"
        )


def _passed(trust_code: TrustCode) -> dict[str, str]:
    """Return the names of the functions and classes that the caller passed in, by their names inside their modules."""
    return {} if isinstance(trust_code, bool) else {thing.__qualname__: name_of(thing) for thing in trust_code}


def parse_json(content: bytes, place: str) -> Any:
    """Parse the JSON content of a file. Raises ValueError if it is invalid, nested too deeply or repeats a key, or if a
    string in it is not valid text."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key occurs twice in one object")
        return found

    try:
        found = json.loads(content, object_pairs_hook=unique)
        if SURROGATE.search(content):  # half of a pair is not text: nothing could write or show it
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except RecursionError:
        raise ValueError(f"{place} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{place} is not valid JSON ({error})") from error


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts and paths in plain data, without the keys of dictionaries."""
    if isinstance(value, (str, PurePath)):
        yield str(value)
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        yield from texts_in(item)


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


class _Decoder:
    """Rebuilds configs. With `checked`, refuses values that do not fit the types of their fields. Unless `trusted`,
    imports only SRL's own parts and `allowed` names, and collects all others in `outside`."""

    def __init__(self, trusted: bool, allowed: frozenset[str] = frozenset(), checked: bool = False) -> None:
        self.outside: list[str] = []
        self._unknown = 0  # classes that were not imported
        self._trusted, self._allowed, self._checked = trusted, allowed, checked

    def decode(self, data: Any, hint: Any, path: str) -> Any:
        before = self._unknown
        value = self._convert(data, hint, path)
        if self._checked and self._unknown == before and not _fits(value, hint):
            raise ValueError(f"{path} must be {_described(hint)}, found {_shown(data)}")
        return value

    def _convert(self, data: Any, hint: Any, path: str) -> Any:
        if isinstance(data, list):
            kind = tuple if _member(hint, tuple) is not None and _member(hint, list) is None else list
            return self._items(data, hint, kind, path)
        if isinstance(data, str):
            if data in NON_FINITE and _means(hint, float):
                return NON_FINITE[data]
            return Path(data) if _means(hint, Path) else data
        if not isinstance(data, dict):
            return data
        if "type" not in data:
            return self._mapping(data, hint, path)
        if set(data) == {"type", "fields"} and isinstance(data["type"], str) and isinstance(data["fields"], dict):
            return self._dataclass(data["type"], data["fields"], hint, path)
        if set(data) == {"type", "value"}:
            return self._tagged(data["type"], data["value"], hint, path)
        raise ValueError(f"{path}: expected 'type' with 'fields' or 'value', found the keys {_shown(sorted(data))}")

    def _items(self, values: list[Any], hint: Any, kind: type, path: str) -> Any:
        return kind(self.decode(v, h, f"{path}[{i}]") for i, (v, h) in enumerate(_pair(values, hint, kind)))

    def _mapping(self, data: dict[str, Any], hint: Any, path: str) -> dict[str, Any]:
        inner = _value_hint(hint)
        return {key: self.decode(item, inner, f"{path}[{_shown(key)}]") for key, item in data.items()}

    def _tagged(self, kind: Any, value: Any, hint: Any, path: str) -> Any:
        if kind == "float" and isinstance(value, str) and value in NON_FINITE:
            return NON_FINITE[value]
        if kind == "path" and isinstance(value, str):
            return Path(value)
        if kind == "tuple" and isinstance(value, list):
            return self._items(value, hint, tuple, path)
        if kind == "dict" and isinstance(value, dict):
            return self._mapping(value, hint, path)
        known = "valid types are float, path, tuple and dict"
        raise ValueError(f"{path}: cannot read {_shown(value)} as type {_shown(kind)}; {known}")

    def _dataclass(self, name: str, data: dict[str, Any], hint: Any, path: str) -> Any:
        own = name in PARTS
        if self._checked and not _accepts_config(hint, trusted=self._trusted):
            raise ValueError(f"{path} must be {_described(hint)}, found a config of type {_shown(name)}")
        if ":" in name and not self._trusted and name not in self._allowed:
            self.outside.append(name[:MAX_SHOWN])
            for key, value in data.items():  # to report all names at once
                self.decode(value, object, f"{path}.{_shown(key)}")
            self._unknown += 1
            return None
        try:
            kind = load_part(name[:MAX_SHOWN])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            raise ValueError(f"{path}: {name} is not a dataclass")
        if self._checked and not _is_subclass(kind, hint):
            raise ValueError(f"{path} must be {_described(hint)}, found {name}")
        before = self._unknown
        values = self._fields(kind, data, path)
        if self._unknown > before:
            return None
        if not (own and self._checked):
            return kind(**values)
        try:
            made = kind(**values)
            outside = made.named_code() if hasattr(made, "named_code") and not self._trusted else ()
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise ValueError(f"{path}: {error}") from error
        self.outside += [one[:MAX_SHOWN] for one in outside if one not in self._allowed]
        return made

    def _fields(self, kind: type, data: dict[str, Any], path: str) -> dict[str, Any]:
        fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
        data = {key: value for key, value in data.items() if key not in getattr(kind, "RETIRED", ())}
        for key in data:
            if key not in fields:
                known = nearest(key[:MAX_SHOWN], fields)
                raise ValueError(f"{path}: {kind.__name__} has no field {_shown(key)}{known}")
        for field in fields.values():
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and field.name not in data:
                raise ValueError(f"{path}: {kind.__name__} requires the field {field.name!r}, which is missing")
        hints = _hints(kind)
        return {key: self.decode(value, hints[key], f"{path}.{key}") for key, value in data.items()}


def _renamed(data: Any, passed: Mapping[str, str]) -> Any:
    """Replace the names of functions and classes by the names of those that the caller passed in."""
    if isinstance(data, dict):
        return {key: _renamed(value, passed) for key, value in data.items()}
    if isinstance(data, list):
        return [_renamed(value, passed) for value in data]
    if isinstance(data, str) and ":" in data:
        return passed.get(data.rpartition(":")[2], data)
    return data


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has the type of its field. The items of collections were checked before."""
    if isinstance(value, int) and not isinstance(value, bool) and not -MAX_INTEGER <= value < MAX_INTEGER:
        return False
    return any(_is_a(value, member) for member in _members(hint))


def _is_a(value: Any, hint: Any) -> bool:
    kind, arguments = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is typing.Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if kind is tuple and isinstance(value, tuple) and arguments and arguments[-1] is not Ellipsis:
        return len(value) == len(arguments)
    if kind in (int, float):
        return not isinstance(value, bool) and isinstance(value, (int, kind))
    if kind is Any or not isinstance(kind, type):
        return True
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be checked at run time
        return True


def _accepts_config(hint: Any, trusted: bool) -> bool:
    """Return whether a field may hold a dataclass. Fields of any type hold one only in trusted files."""
    plain = (str, int, float, bool, tuple, list, dict, Mapping, Path, type(None), typing.Literal)
    members = [typing.get_origin(member) or member for member in _members(hint)]
    return any(member not in plain and (trusted or member is not Any) for member in members)


def _is_subclass(kind: type, hint: Any) -> bool:
    for member in _members(hint):
        if member is Any or not isinstance(member, type):
            return True
        try:
            if issubclass(kind, member):
                return True
        except TypeError:  # a protocol that cannot be checked at run time
            return True
    return False


def _described(hint: Any) -> str:
    names = [getattr(typing.get_origin(member) or member, "__name__", str(member)) for member in _members(hint)]
    return " or ".join(dict.fromkeys(names))


def _shown(value: Any) -> str:
    """Return a value from a file as it appears in a message."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


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
