"""The state of environments written in Python: the graph of their objects as arrays and text.

Numbers, strings, numpy arrays, random generators, containers, and objects whose attributes are such things can be
kept; :mod:`srl.environments.adapters.reinstate` puts them back. Functions, classes and modules are only named.
Memory of C
libraries (a simulator, an emulator) cannot be seen from here: such objects raise `NotResumable`, and lanes that hold
them need a `state` of their own.
"""

from __future__ import annotations

import collections
import enum
import functools
import logging
import random
import re
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from srl.base.seeding import plain
from srl.base.state import NotResumable, pack
from srl.base.tree import Array

PLAIN = (bool, int, float, str, type(None))
CONSTANTS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.ModuleType,
    functools.partial,
    type,
    property,
    range,
    slice,
    types.EllipsisType,
    types.NotImplementedType,
    np.dtype,
    np.ufunc,
    re.Pattern,
    logging.Logger,
)
"""What does not change, or cannot be seen; taken from the fresh environment."""
SEQUENCES = {"list": list, "set": set, "frozenset": frozenset, "deque": collections.deque}
MAPPINGS = {"dict": dict, "OrderedDict": collections.OrderedDict, "Counter": collections.Counter}
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
POINTER = 8


def capture(root: Any) -> dict[str, Array]:
    """The state of everything that can be reached from an object. Raises NotResumable."""
    return _Capture().run(root)


class _Capture:
    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # what has a number must live as long as its id is used
        self._arrays: dict[str, Array] = {}
        self._memories: dict[int, int] = {}  # base of an array -> its first node

    def run(self, root: Any) -> dict[str, Array]:
        self._value(root, type(root).__name__)
        return {**self._arrays, "graph": pack(self._nodes)}

    def _value(self, value: Any, path: str) -> Any:
        """Plain values stand for themselves; everything else is `[number]` of its node."""
        if type(value) in PLAIN:
            return value
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._nodes)
            self._kept.append(value)
            self._nodes.append(None)
            self._nodes[number] = self._node(value, path, number)
        return [number]

    def _node(self, value: Any, path: str, number: int) -> Any:
        kind = type(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value, path, number)
        if isinstance(value, np.random.Generator) and type(value.bit_generator).__name__ in BIT_GENERATORS:
            return {"kind": "generator", "state": plain(value.bit_generator.state)}
        if kind is np.random.RandomState:
            return {"kind": "random_state", "state": plain(value.get_state(legacy=False))}
        if kind is random.Random:
            return {"kind": "random", "state": value.getstate()}
        if isinstance(value, enum.Enum):
            return {"kind": "enum", "type": name_of(kind), "name": value.name}
        if isinstance(value, (bytes, bytearray)) and kind in (bytes, bytearray):
            return {"kind": kind.__name__, "hex": value.hex()}
        if isinstance(value, CONSTANTS):
            return {"kind": "constant", "is": describe(value)}
        for name, container in SEQUENCES.items():
            if kind is container:
                items = [self._value(item, f"{path}[{index}]") for index, item in enumerate(value)]
                return {"kind": name, "items": items, "maxlen": getattr(value, "maxlen", None)}
        for name, container in MAPPINGS.items():
            if kind is container:
                return {"kind": name, "items": self._pairs(value, path)}
        if isinstance(value, tuple):
            items = [self._value(item, f"{path}[{index}]") for index, item in enumerate(value)]
            return {"kind": "tuple", "type": "" if kind is tuple else name_of(kind), "items": items}
        if kind is collections.defaultdict:
            factory = self._value(value.default_factory, f"{path}.default_factory")
            return {"kind": "defaultdict", "factory": factory, "items": self._pairs(value, path)}
        if not is_plain_class(kind):
            raise NotResumable(f"{path} is a {name_of(kind)}, whose memory cannot be seen from Python")
        attributes = {name: self._value(item, f"{path}.{name}") for name, item in attributes_of(value)}
        return {"kind": "object", "type": name_of(kind), "attributes": attributes}

    def _pairs(self, value: Any, path: str) -> list[Any]:
        return [
            [self._value(key, f"{path} key {key!r}"), self._value(item, f"{path}[{key!r}]")]
            for key, item in value.items()
        ]

    def _array(self, value: Any, path: str, number: int) -> Any:
        if value.dtype.hasobject:
            if value.dtype.kind != "O":
                raise NotResumable(f"{path} is an array of {value.dtype}, which cannot be kept")
            items = [self._value(item, f"{path}[{index}]") for index, item in enumerate(value.reshape(-1))]
            return {"kind": "objects", "shape": list(value.shape), "items": items}
        content = np.array(value, order="C")
        common = value.dtype.kind in "biuf" and value.dtype.itemsize <= 8
        # Text, complex numbers, dates: as bytes.
        self._arrays[str(number)] = content if common else np.frombuffer(content.tobytes(), np.uint8)
        node = {"dtype": value.dtype.str, "shape": list(value.shape)}
        if isinstance(value, np.generic):
            return {"kind": "scalar", **node}
        owner = base_of(value)
        self._kept.append(owner)
        fortran = bool(value.flags.f_contiguous and not value.flags.c_contiguous)
        return {"kind": "array", **node, "fortran": fortran, "shares": self._memories.setdefault(id(owner), number)}


def is_plain_class(kind: type) -> bool:
    """Do its objects hold attributes and nothing else? C libraries' objects have more memory than that."""
    slots = sum(len(list(_slots(one))) for one in kind.__mro__)
    visible = object.__basicsize__ + POINTER * (slots + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))
    return kind.__basicsize__ <= visible and kind.__itemsize__ == 0


def _slots(kind: type) -> Iterator[str]:
    slots = kind.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if name not in ("__dict__", "__weakref__"):
            private = name.startswith("__") and not name.endswith("__")
            yield f"_{kind.__name__.lstrip('_')}{name}" if private else name


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        for name in _slots(kind):
            if hasattr(value, name):
                yield name, getattr(value, name)


def base_of(array: Any) -> Any:
    """Whoever owns the memory."""
    while isinstance(array, np.ndarray) and isinstance(array.base, np.ndarray):
        array = array.base
    return array


def name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def describe(value: Any) -> str:
    if isinstance(value, functools.partial):
        return f"partial of {describe(value.func)}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, (range, slice, np.dtype, re.Pattern)):
        return repr(value)
    name = getattr(value, "__qualname__", getattr(value, "name", type(value).__qualname__))
    return f"{getattr(value, '__module__', '') or ''}:{name}"
