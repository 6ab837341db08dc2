"""Putting a captured state into a fresh environment.

Nothing is unpickled. The environment was just built from its own config: what is there is overwritten, keeping who
refers to whom. Functions, classes and modules cannot come from a state: the fresh environment must have the same ones
in the same places. An object that the fresh environment lacks is made only of a class that lives in one of the
environment's own packages and is imported already.
"""

from __future__ import annotations

import collections
import random
import sys
from typing import Any

import numpy as np

from srl.base.state import NotResumable, State, unpack
from srl.base.tree import Array
from srl.environments.adapters.capture import (
    BIT_GENERATORS,
    CONSTANTS,
    MAPPINGS,
    SEQUENCES,
    attributes_of,
    base_of,
    describe,
    is_plain_class,
    name_of,
)

MISSING = object()


def reinstate(root: Any, state: State) -> None:
    """Put a captured state into a fresh object of the same making. Raises NotResumable where it does not fit."""
    _Reinstatement(root, state).run()


class _Reinstatement:
    def __init__(self, root: Any, state: State) -> None:
        self._root = root
        self._state = state
        self._nodes = unpack(state["graph"])
        self._built: dict[int, Any] = {}
        self._claimed: dict[int, Any] = {}  # things of the fresh environment that have their node
        self._packages: set[str] = set()

    def run(self) -> None:
        root = self._build([0], self._root, type(self._root).__name__)
        if root is not self._root:
            wanted, found = self._nodes[0].get("type"), name_of(type(self._root))
            raise NotResumable(f"the state of a {wanted} does not fit a {found}")

    def _build(self, reference: Any, current: Any, path: str) -> Any:
        """What the saved value stands for, made of what the fresh environment has in its place if possible."""
        if not isinstance(reference, list):
            return reference
        number = reference[0]
        if number not in self._built:
            node = self._nodes[number]
            maker = getattr(self, f"_{node['kind']}", None)
            if maker is None:
                maker = self._mapping if node["kind"] in MAPPINGS else self._sequence
            made = maker(node, number, current, path)
            self._built[number] = made
        return self._built[number]

    def _claim(self, current: Any, number: int) -> bool:
        """May this node take over what is there? Not if another one did."""
        if id(current) in self._claimed:
            return False
        self._claimed[id(current)] = current
        self._built[number] = current
        return True

    def _array(self, node: Any, number: int, current: Any, path: str) -> Any:
        saved = self._content(node, number)
        fits = isinstance(current, np.ndarray) and current.shape == saved.shape and current.dtype == saved.dtype
        first = node["shares"]
        if fits and current.flags.writeable and self._claim(current, number):
            if first != number and base_of(self._built.get(first)) is not base_of(current):
                raise NotResumable(f"{path} shared its memory with another array, and does not in a fresh environment")
            current[...] = saved
            return current
        if first != number:
            raise NotResumable(f"{path} is a view of another array, which cannot be made anew")
        return np.asfortranarray(saved) if node["fortran"] else saved.copy()

    def _scalar(self, node: Any, number: int, current: Any, path: str) -> Any:
        return self._content(node, number)[()]

    def _content(self, node: Any, number: int) -> Array:
        saved = self._state[str(number)]
        dtype = np.dtype(node["dtype"])
        return saved if saved.dtype == dtype else saved.view(dtype).reshape(node["shape"])

    def _objects(self, node: Any, number: int, current: Any, path: str) -> Any:
        fits = isinstance(current, np.ndarray) and current.dtype == object and list(current.shape) == node["shape"]
        there = list(current.reshape(-1)) if fits else []
        made = current if fits and self._claim(current, number) else np.empty(node["shape"], object)
        self._built[number] = made
        made.reshape(-1)[:] = self._items(node["items"], there, path)
        return made

    def _generator(self, node: Any, number: int, current: Any, path: str) -> Any:
        name = node["state"]["bit_generator"]
        same = isinstance(current, np.random.Generator) and type(current.bit_generator).__name__ == name
        if not (same and self._claim(current, number)):
            if name not in BIT_GENERATORS:
                raise NotResumable(f"{path}: no random generator {name!r}; known are {', '.join(BIT_GENERATORS)}")
            kind: Any = type(current) if isinstance(current, np.random.Generator) else np.random.Generator
            current = kind(getattr(np.random, name)(0))
        current.bit_generator.state = node["state"]
        return current

    def _random_state(self, node: Any, number: int, current: Any, path: str) -> Any:
        if not (type(current) is np.random.RandomState and self._claim(current, number)):
            current = np.random.RandomState(0)
        current.set_state(node["state"])
        return current

    def _random(self, node: Any, number: int, current: Any, path: str) -> Any:
        if not (type(current) is random.Random and self._claim(current, number)):
            current = random.Random(0)
        version, internal, gauss = node["state"]
        current.setstate((version, tuple(internal), gauss))
        return current

    def _enum(self, node: Any, number: int, current: Any, path: str) -> Any:
        return self._class(node["type"], type(current), path)[node["name"]]

    def _bytes(self, node: Any, number: int, current: Any, path: str) -> Any:
        return bytes.fromhex(node["hex"])

    def _bytearray(self, node: Any, number: int, current: Any, path: str) -> Any:
        return bytearray.fromhex(node["hex"])

    def _constant(self, node: Any, number: int, current: Any, path: str) -> Any:
        if current is MISSING or not isinstance(current, CONSTANTS) or describe(current) != node["is"]:
            found = "nothing" if current is MISSING else describe(current)
            raise NotResumable(f"{path} was {node['is']}; a fresh environment has {found} there")
        return current

    def _tuple(self, node: Any, number: int, current: Any, path: str) -> Any:
        there = list(current) if isinstance(current, tuple) else []
        items = self._items(node["items"], there, path)
        return tuple.__new__(self._class(node["type"], type(current), path) if node["type"] else tuple, items)

    def _sequence(self, node: Any, number: int, current: Any, path: str) -> Any:
        container: Any = SEQUENCES[node["kind"]]
        mutable = type(current) is container and container is not frozenset
        if node["kind"] in ("set", "frozenset"):
            items = self._items(node["items"], [], path)
            if mutable and self._claim(current, number):
                current.clear()
                current.update(items)
                return current
            return container(items)
        there = list(current) if type(current) is container else []
        kept = mutable and getattr(current, "maxlen", None) == node["maxlen"] and self._claim(current, number)
        made = current if kept else container() if container is list else container(maxlen=node["maxlen"])
        self._built[number] = made  # before its items: they may refer to it
        items = self._items(node["items"], there, path)
        made.clear()
        made.extend(items)
        return made

    def _mapping(self, node: Any, number: int, current: Any, path: str) -> Any:
        container: Any = MAPPINGS[node["kind"]]
        there = dict(current) if type(current) is container else {}
        made = current if type(current) is container and self._claim(current, number) else container()
        return self._fill(made, node, number, there, path)

    def _defaultdict(self, node: Any, number: int, current: Any, path: str) -> Any:
        old = type(current) is collections.defaultdict
        factory = self._build(node["factory"], current.default_factory if old else MISSING, f"{path}.default_factory")
        made = current if old and self._claim(current, number) else collections.defaultdict(factory)
        return self._fill(made, node, number, dict(current) if old else {}, path)

    def _fill(self, made: Any, node: Any, number: int, there: dict[Any, Any], path: str) -> Any:
        self._built[number] = made
        pairs = []
        for key, item in node["items"]:
            name = self._build(key, MISSING, f"{path} key")
            pairs.append((name, self._build(item, there.get(name, MISSING), f"{path}[{name!r}]")))
        made.clear()
        made.update(pairs)
        return made

    def _object(self, node: Any, number: int, current: Any, path: str) -> Any:
        kind = self._class(node["type"], type(current), path)
        if not is_plain_class(kind):
            raise NotResumable(f"{path}: {node['type']} is not a plain class")
        there = type(current) is kind and self._claim(current, number)
        made = current if there else object.__new__(kind)
        self._built[number] = made
        old = dict(attributes_of(made)) if there else {}
        if there:
            self._packages |= {base.__module__.partition(".")[0] for base in kind.__mro__} - {"builtins"}
        for name, reference in node["attributes"].items():
            value = self._build(reference, old.pop(name, MISSING), f"{path}.{name}")
            object.__setattr__(made, name, value)
        for name in old:
            object.__delattr__(made, name)
        return made

    def _items(self, references: list[Any], there: list[Any], path: str) -> list[Any]:
        padded = [*there, *[MISSING] * (len(references) - len(there))]
        pairs = zip(references, padded, strict=False)
        return [self._build(one, current, f"{path}[{index}]") for index, (one, current) in enumerate(pairs)]

    def _class(self, name: str, current: type, path: str) -> Any:
        """The class of that name: the one that is there, or one of the environment's own packages."""
        if name_of(current) == name:
            return current
        module, _, qualified = name.partition(":")
        found: Any = sys.modules.get(module) if module.partition(".")[0] in self._packages else None
        for part in qualified.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, type):
            raise NotResumable(
                f"{path}: an object of {name} must be made anew, but that class is not in the environment's packages "
                f"({', '.join(sorted(self._packages))})"
            )
        return found
