"""Versioned states in shared memory, written by one process. Readers on the host never see a partial state."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from srl.base.shared_memory import Memory
from srl.base.tree import Array

HEADER_BYTES = 1 << 17
LAYOUT_OFFSET = 1 << 12
FACTS_BYTES = 1 << 20  # maximum size of a state's metadata (`facts`); pages that are never written take no memory
_MAGIC = 0x53524C534E4150
_READY, _SLOT_BYTES, _LAYOUT_BYTES, _ACTIVE, _DURABLE = 0, 1, 2, 3, 4
_SLOTS = 16  # per slot: sequence number (odd during a write) and version


class Snapshot:
    """States with the same arrays, each with a version and metadata (`facts`), in `num_slots` slots of shared memory.

    A write goes to an inactive slot and becomes visible with a single store, so a writer killed midway leaves the
    previous state intact.
    """

    def __init__(self, memory: Memory, num_slots: int = 3) -> None:
        self.memory = memory
        self._header = memory.bytes[:LAYOUT_OFFSET].data.cast("q")  # stays valid if the memory grows
        self.num_slots = num_slots
        self._layout: dict[str, tuple[str, tuple[int, ...], int]] | None = None

    @classmethod
    def create(cls, name: str, num_slots: int = 3) -> Snapshot:
        return cls(Memory.create(name, HEADER_BYTES), num_slots)

    @property
    def version(self) -> int:
        """Version of the newest state; -1 before the first."""
        header = self._header
        active = int(header[_ACTIVE])
        return int(header[_SLOTS + 2 * (active - 1) + 1]) if active else -1

    @property
    def durable(self) -> int:
        """Newest version that survives the loss of this host, or simply the newest if no other host stores copies."""
        durable = int(self._header[_DURABLE])
        return durable - 2 if durable else self.version

    def set_durable(self, version: int | None) -> None:
        """Set the newest version that another host has a copy of: -1 for none yet, None if no host stores copies."""
        self._header[_DURABLE] = 0 if version is None else version + 2

    @property
    def active_slot(self) -> int | None:
        """Slot of the newest state."""
        active = int(self._header[_ACTIVE])
        return active - 1 if active else None

    def write(
        self, version: int, arrays: Mapping[str, Array], facts: Mapping[str, Any], keep: frozenset[int] = frozenset()
    ) -> int:
        """Write a state, make it the newest and return its slot. Slots in `keep` are not overwritten."""
        if not self._header[_READY]:
            self._lay_out(arrays)
        layout = self._known_layout()
        _check_layout(arrays, layout)
        text = msgspec.json.encode(dict(facts))
        if len(text) > FACTS_BYTES - 8:
            raise ValueError(f"the metadata of a state takes {len(text)} bytes; the limit is {FACTS_BYTES - 8}")
        header = self._header
        active = int(header[_ACTIVE]) - 1
        free = [slot for slot in range(self.num_slots) if slot != active and slot not in keep]
        # Take the oldest slot, because a slow reader may still be reading the others.
        slot = min(free, key=lambda s: int(header[_SLOTS + 2 * s + 1]))
        sequence = _SLOTS + 2 * slot
        writing = int(header[sequence]) | 1  # also odd if a writer was killed while writing this slot
        header[sequence] = writing
        body = self._slot(slot)
        body[:8].view("int64")[0] = len(text)
        body[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
        for key, (dtype, shape, offset) in layout.items():
            body[offset : offset + _nbytes(dtype, shape)].view(dtype).reshape(shape)[...] = arrays[key]
        header[sequence + 1] = version
        header[sequence] = writing + 1
        header[_ACTIVE] = slot + 1
        return slot

    def read(self, slot: int | None = None) -> tuple[int, dict[str, Array], dict[str, Any]] | None:
        """Return a copy of the newest state (or of the one in `slot`): version, arrays, metadata. None before the first
        write."""
        while True:
            header = self._header
            if not header[_ACTIVE]:
                return None
            chosen = int(header[_ACTIVE]) - 1 if slot is None else slot
            sequence = int(header[_SLOTS + 2 * chosen])
            if sequence % 2 == 0:
                version = int(header[_SLOTS + 2 * chosen + 1])
                body = self._slot(chosen)
                size = int(body[:8].view("int64")[0])
                text = body[8 : 8 + size].tobytes()
                arrays = {
                    key: body[offset : offset + _nbytes(dtype, shape)].view(dtype).reshape(shape).copy()
                    for key, (dtype, shape, offset) in self._known_layout().items()
                }
                if int(header[_SLOTS + 2 * chosen]) == sequence:
                    return version, arrays, msgspec.json.decode(text)

    def _lay_out(self, arrays: Mapping[str, Array]) -> None:
        offset = FACTS_BYTES
        layout: dict[str, tuple[str, tuple[int, ...], int]] = {}
        for key, array in arrays.items():
            layout[key] = (array.dtype.name, array.shape, offset)
            offset += -(-array.nbytes // 64) * 64
        text = msgspec.json.encode(layout)
        if len(text) > HEADER_BYTES // 2 - LAYOUT_OFFSET:
            raise ValueError(f"{len(layout)} arrays are too many for the header of a state; concatenate some of them")
        os.ftruncate(self.memory.fd, HEADER_BYTES + self.num_slots * offset)
        header = self._header
        self.memory.bytes[LAYOUT_OFFSET : LAYOUT_OFFSET + len(text)] = np.frombuffer(text, np.uint8)
        header[_LAYOUT_BYTES] = len(text)
        header[_SLOT_BYTES] = offset
        header[_READY] = _MAGIC

    def _known_layout(self) -> dict[str, tuple[str, tuple[int, ...], int]]:
        if self._layout is None:
            size = int(self._header[_LAYOUT_BYTES])
            text = self.memory.bytes[LAYOUT_OFFSET : LAYOUT_OFFSET + size].tobytes()
            self._layout = msgspec.json.decode(text, type=dict[str, tuple[str, tuple[int, ...], int]])
        return self._layout

    def _slot(self, slot: int) -> Array:
        size = int(self._header[_SLOT_BYTES])
        end = HEADER_BYTES + (slot + 1) * size
        if self.memory.nbytes < end:  # the writer enlarged the memory after it was mapped here
            self.memory.remap()
        return self.memory.bytes[end - size : end]


def _check_layout(arrays: Mapping[str, Array], layout: Mapping[str, tuple[str, tuple[int, ...], int]]) -> None:
    if set(arrays) != set(layout):
        raise ValueError(f"expected a state with the arrays {sorted(layout)}, found {sorted(arrays)}")
    for key, (dtype, shape, _) in layout.items():
        array, found = arrays[key], arrays[key].dtype.name
        if array.shape != shape or found != dtype:
            raise ValueError(f"array {key!r} of a state: expected {dtype}{shape}, found {found}{array.shape}")


def _nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize
