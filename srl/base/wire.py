"""The wire format: a frame is a fixed prefix, a typed msgpack header and the raw bytes of its arrays."""

from __future__ import annotations

import math
import struct
import typing
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from srl.base.tree import Array

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 2**20
MAX_ARRAYS = 1024
MAX_DIMENSIONS = 8
ALIGNMENT = 64
MAX_CACHED_LAYOUTS = 128
MAX_CACHED_HEADER_BYTES = 4096  # layouts with larger descriptors are not cached

MAGIC = b"SR"
VERSION = 1
PREFIX = struct.Struct("<2sBBIQ")  # magic, version, flags (none yet), header length, payload length

DTYPES = tuple(np.dtype(name) for name in ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_BOOL = DTYPES[0]
_PADDING = [bytes(size) for size in range(ALIGNMENT)]


class DecodeError(ValueError):
    """A frame violates the format, so nothing in it can be trusted."""


class _Descriptor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    dtype: Annotated[int, msgspec.Meta(ge=0, lt=len(DTYPES))]
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=2**62)], ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]


class _Layout(msgspec.Struct, frozen=True):
    """Positions of the arrays that follow a frame's header."""

    header: msgspec.Raw  # encoded descriptors of the arrays
    arrays: tuple[tuple[tuple[int, ...], np.dtype[Any], int], ...]  # shape, dtype and offset of each array
    gaps: tuple[bytes, ...]  # padding before each array, for alignment
    num_bytes: int


class Codec:
    """Encoder and decoder for one kind of channel. `messages` is a Struct type or a union of tagged ones; all other
    types are rejected. Successive messages on a stream usually carry arrays of the same shapes, so the codec caches
    each layout that it has computed and checked.
    """

    def __init__(self, messages: Any, max_bytes: int = MAX_BYTES) -> None:
        self.types: frozenset[type] = frozenset(typing.get_args(messages) or (messages,))
        self.max_bytes = max_bytes
        self._encoder = msgspec.msgpack.Encoder()
        header: Any = tuple[messages, msgspec.Raw]
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(header)
        self._descriptors = msgspec.msgpack.Decoder(
            Annotated[tuple[_Descriptor, ...], msgspec.Meta(max_length=MAX_ARRAYS)]
        )
        self._sent: dict[tuple[Any, ...], _Layout] = {}
        self._received: dict[bytes, _Layout] = {}

    def encode(self, message: msgspec.Struct, arrays: Sequence[Array] = ()) -> list[Buffer]:
        """Return the frame as buffers to send in order. Buffers of contiguous arrays are views, not copies."""
        if type(message) not in self.types:
            names = ", ".join(sorted(kind.__name__ for kind in self.types))
            raise TypeError(f"cannot send {type(message).__name__} on this channel, which carries {names}")
        frame = bytearray(PREFIX.size)
        if not arrays:
            self._encoder.encode_into((message, ()), frame, PREFIX.size)
            self._write_prefix(frame, len(frame) - PREFIX.size, 0)
            return [frame]
        layout = self._sent.get(tuple([(array.dtype, array.shape) for array in arrays]))
        if layout is None:
            arrays = [_native(array) for array in arrays]
            layout = self._outgoing_layout(arrays)
        self._encoder.encode_into((message, layout.header), frame, PREFIX.size)
        num_header_bytes = len(frame) - PREFIX.size
        frame += _PADDING[-len(frame) % ALIGNMENT]
        self._write_prefix(frame, num_header_bytes, layout.num_bytes)
        buffers: list[Buffer] = [frame]
        for array, gap in zip(arrays, layout.gaps, strict=True):
            if gap:
                buffers.append(gap)
            if array.size:
                buffers.append(_bytes_of(array))
        return buffers

    def _outgoing_layout(self, arrays: Sequence[Array]) -> _Layout:
        if len(arrays) > MAX_ARRAYS:
            raise ValueError(f"a message carries at most {MAX_ARRAYS} arrays, found {len(arrays)}; stack some of them")
        descriptors = tuple(_Descriptor(_CODES[array.dtype], array.shape) for array in arrays)
        layout = _lay_out(descriptors, self._encoder.encode(descriptors))
        _cache(self._sent, tuple([(array.dtype, array.shape) for array in arrays]), layout)
        return layout

    def _write_prefix(self, frame: bytearray, num_header_bytes: int, num_payload_bytes: int) -> None:
        if num_header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"message too large: {num_header_bytes} bytes before arrays, limit {MAX_HEADER_BYTES}")
        if (size := len(frame) + num_payload_bytes) > self.max_bytes:
            raise ValueError(f"frame too large: {size} bytes, limit {self.max_bytes}; send it in parts")
        PREFIX.pack_into(frame, 0, MAGIC, VERSION, 0, num_header_bytes, num_payload_bytes)

    def decode(self, frame: Buffer) -> tuple[Any, list[Array]]:
        """Return the message and its arrays, which are views of `frame`. Raises only DecodeError."""
        size = len(frame)
        if size < PREFIX.size:
            raise DecodeError(f"a frame has at least {PREFIX.size} bytes, found {size}")
        if size > self.max_bytes:
            raise DecodeError(f"frame too large: {size} bytes, limit {self.max_bytes}")
        magic, version, flags, num_header_bytes, num_payload_bytes = PREFIX.unpack_from(frame)
        if magic != MAGIC or version != VERSION or flags:
            found = f"magic {magic!r}, version {version}, flags {flags}"
            raise DecodeError(f"unsupported frame: expected format version {VERSION}, found {found}")
        end = PREFIX.size + num_header_bytes
        if num_header_bytes > MAX_HEADER_BYTES or end > size:
            raise DecodeError(f"a frame of {size} bytes declares a header of {num_header_bytes}")
        try:
            message, descriptors = self._decoder.decode(memoryview(frame)[PREFIX.size : end])
            header = bytes(descriptors)
            layout = self._received.get(header) or self._incoming_layout(header)
        except DecodeError:
            raise
        except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            raise DecodeError(f"invalid header: {error}") from error
        if not layout.arrays:
            if num_payload_bytes or end != size:
                raise DecodeError(f"found {size - end} bytes after a message without arrays")
            return message, []
        start = end + -end % ALIGNMENT
        if layout.num_bytes != num_payload_bytes or start + num_payload_bytes != size:
            raise DecodeError(f"expected a frame of {start + layout.num_bytes} bytes, found {size}")
        arrays = []
        for shape, dtype, offset in layout.arrays:
            array: Array = np.ndarray(shape, dtype, frame, start + offset)
            if dtype is _BOOL and array.size and array.view(np.uint8).max() > 1:
                raise DecodeError("found a bool that is neither 0 nor 1")
            arrays.append(array)
        return message, arrays

    def _incoming_layout(self, header: bytes) -> _Layout:
        descriptors = self._descriptors.decode(header)
        for descriptor in descriptors:
            # The limit also applies with zeros left out: numpy rejects such shapes although they take no bytes.
            extent = DTYPES[descriptor.dtype].itemsize
            for length in descriptor.shape:
                extent *= length or 1
            if extent > self.max_bytes:
                raise DecodeError(f"an array of shape {descriptor.shape} exceeds the limit of {self.max_bytes} bytes")
        layout = _lay_out(descriptors, header)
        _cache(self._received, header, layout)
        return layout


def _lay_out(descriptors: tuple[_Descriptor, ...], header: bytes) -> _Layout:
    arrays, gaps, end = [], [], 0
    for descriptor in descriptors:
        dtype = DTYPES[descriptor.dtype]
        gaps.append(_PADDING[-end % ALIGNMENT])
        offset = end + len(gaps[-1])
        arrays.append((descriptor.shape, dtype, offset))
        end = offset + dtype.itemsize * math.prod(descriptor.shape)
    return _Layout(msgspec.Raw(header), tuple(arrays), tuple(gaps), end)


_Key = TypeVar("_Key", bytes, tuple[Any, ...])


def _cache(layouts: dict[_Key, _Layout], key: _Key, layout: _Layout) -> None:
    """Cache a layout. The cache is bounded, so that shapes that change with every message do not exhaust memory."""
    if len(layout.header) <= MAX_CACHED_HEADER_BYTES:
        if len(layouts) >= MAX_CACHED_LAYOUTS:
            layouts.clear()
        layouts[key] = layout


def _native(array: Array) -> Array:
    """Return the array in native byte order (little-endian on all supported hosts)."""
    if array.dtype not in _CODES:
        native = array.dtype.newbyteorder("=")
        if native not in _CODES:
            raise TypeError(f"arrays on the wire are bool, int, uint or float16/32/64, found {array.dtype}")
        array = array.astype(native)
    if array.ndim > MAX_DIMENSIONS:
        raise ValueError(f"arrays on the wire have at most {MAX_DIMENSIONS} dimensions, found {array.ndim}")
    return array


def _bytes_of(array: Array) -> memoryview:
    """Return the array's bytes in row-major order."""
    try:
        return array.data.cast("B")
    except TypeError:
        return array.copy(order="C").data.cast("B")
