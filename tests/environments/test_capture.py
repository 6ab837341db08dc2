"""Environments written in Python can be saved between two steps; what cannot be seen is refused, not guessed."""

from __future__ import annotations

import collections
import enum
import random
from typing import Any

import numpy as np
import pytest

from srl.base.state import NotResumable, pack, unpack
from srl.environments.adapters.capture import capture
from srl.environments.adapters.reinstate import reinstate


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Thing:
    __slots__ = ("place", "twin")

    def __init__(self, place: int) -> None:
        self.place = place
        self.twin: Thing | None = None


Pair = collections.namedtuple("Pair", "left right")


class World:
    """Holds one of everything."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.same_random = self.random
        self.old_random = np.random.RandomState(0)
        self.pure_random = random.Random(0)
        self.board = np.zeros((2, 3), np.float32)
        self.row = self.board[1]  # a view
        self.name = np.array([b"a", b"b"])
        self.grid: Any = np.full(3, None, object)
        self.things: list[Thing] = []
        self.counts: dict[Any, Any] = collections.defaultdict(int)
        self.queue: collections.deque[int] = collections.deque(maxlen=3)
        self.color = Color.RED
        self.pair = Pair(1, [2])
        self.seen: set[int] = set()  # small numbers: a copy has them in the same order, which no other set promises
        self.scalar = np.float32(0.1)
        self.me = self
        self.act = self.step

    def step(self) -> list[Any]:
        self.row += 1
        thing = Thing(int(self.random.integers(100)))
        thing.twin = self.things[-1] if self.things else thing
        self.things.append(thing)
        self.grid[len(self.things) % 3] = thing
        self.counts[(thing.place, "x")] += 1
        self.queue.append(thing.place)
        self.color = Color(1 + thing.place % 2)
        self.pair = Pair(self.pair.left + 1, [*self.pair.right, self.pure_random.random()])
        self.seen.add(len(self.things))
        self.scalar *= np.float32(1.1)
        drawn = [self.same_random.normal(), self.old_random.normal(), self.pure_random.random()]
        return [*drawn, self.board.tolist(), sorted(self.seen), self.scalar, self.pair.right[-1], self.me is self]


def copied(world: World) -> World:
    fresh = World()
    reinstate(fresh, capture(world))
    return fresh


def test_a_restored_object_goes_on_as_the_first_does() -> None:
    world = World()
    for _ in range(5):
        world.step()
    other = copied(world)
    assert [world.step() for _ in range(5)] == [other.step() for _ in range(5)]
    assert capture(world)["graph"].tobytes() == capture(other)["graph"].tobytes()


def test_who_refers_to_whom_is_kept() -> None:
    world = World()
    for _ in range(3):
        world.step()
    other = copied(world)
    assert other.same_random is other.random
    assert other.me is other
    assert np.shares_memory(other.row, other.board)
    assert other.things[2].twin is other.things[1]
    assert other.things[0].twin is other.things[0]
    assert other.grid[0] is other.things[2]
    assert other.act.__self__ is other


def test_memory_of_a_c_library_is_refused_by_the_place_it_lies_in() -> None:
    world = World()
    world.counts["lock"] = memoryview(b"abc")
    with pytest.raises(NotResumable, match=r"World.counts\['lock'\] is a builtins:memoryview"):
        capture(world)


def test_functions_cannot_come_from_a_state() -> None:
    world = World()
    state = capture(world)
    nodes = unpack(state["graph"])
    function = next(node for node in nodes if node["kind"] == "constant" and "World.step" in node["is"])
    function["is"] = "posix:system"
    with pytest.raises(NotResumable, match=r"World.act was posix:system; a fresh environment has .*World.step"):
        reinstate(World(), {**state, "graph": pack(nodes)})


def test_objects_of_foreign_classes_cannot_come_from_a_state() -> None:
    world = World()
    world.step()
    state = capture(world)
    nodes = unpack(state["graph"])
    for node in nodes:
        if node["kind"] == "object" and node["type"].endswith(":Thing"):
            node["type"] = "subprocess:Popen"
    with pytest.raises(NotResumable, match="subprocess:Popen must be made anew, but that class is not in the"):
        reinstate(World(), {**state, "graph": pack(nodes)})


def test_a_state_of_something_else_does_not_fit() -> None:
    with pytest.raises(NotResumable, match="Thing"):
        reinstate(Thing(0), capture(World()))
