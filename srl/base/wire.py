"""The wire format: one frame is a fixed prefix, a typed msgpack header and the raw bytes of its arrays."""

from __future__ import annotations

import struct
import typing
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np

from srl.base.tree import Array

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 2**20
MAX_ARRAYS = 1024
MAX_DIMENSIONS = 8
ALIGNMENT = 64

MAGIC = b"SR"
VERSION = 1
PREFIX = struct.Struct("<2sBBIQ")  # magic, version, flags (none yet), header length, payload length

DTYPES = tuple(np.dtype(name) for name in ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_BOOL = _CODES[np.dtype("bool")]
_PADDING = [bytes(size) for size in range(ALIGNMENT)]


class DecodeError(ValueError):
    """A frame that is not one of ours. Nothing in it can be trusted; the sender broke the rules."""


class _Descriptor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    dtype: Annotated[int, msgspec.Meta(ge=0, lt=len(DTYPES))]
    shape: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=2**62)], ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]


class Codec:
    """Frames of one kind of channel. `messages` is a Struct type or a union of tagged ones; nothing else passes."""

    def __init__(self, messages: Any, max_bytes: int = MAX_BYTES) -> None:
        self.types: frozenset[type] = frozenset(typing.get_args(messages) or (messages,))
        self.max_bytes = max_bytes
        self._encoder = msgspec.msgpack.Encoder()
        descriptors = Annotated[tuple[_Descriptor, ...], msgspec.Meta(max_length=MAX_ARRAYS)]
        header: Any = tuple[messages, descriptors]
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(header)

    def encode(self, message: msgspec.Struct, arrays: Sequence[Array] = ()) -> list[Buffer]:
        """The frame as buffers to be sent one after the other. Those of contiguous arrays are views, not copies."""
        if type(message) not in self.types:
            names = sorted(kind.__name__ for kind in self.types)
            raise TypeError(f"this channel carries {', '.join(names)}; found {type(message).__name__}")
        frame = bytearray(PREFIX.size)
        if not arrays:
            self._encoder.encode_into((message, ()), frame, PREFIX.size)
            self._write_prefix(frame, len(frame) - PREFIX.size, 0)
            return [frame]
        if len(arrays) > MAX_ARRAYS:
            raise ValueError(f"a message carries at most {MAX_ARRAYS} arrays, found {len(arrays)}; stack some of them")
        native = [_contiguous(array) for array in arrays]
        descriptors = [(_CODES[array.dtype], array.shape) for array in native]
        self._encoder.encode_into((message, descriptors), frame, PREFIX.size)
        num_header_bytes = len(frame) - PREFIX.size
        frame += _PADDING[-len(frame) % ALIGNMENT]
        buffers: list[Buffer] = [frame]
        payload = 0
        for array in native:
            if padding := -payload % ALIGNMENT:
                buffers.append(_PADDING[padding])
            if array.nbytes:
                buffers.append(array.reshape(-1).view(np.uint8).data)
            payload += padding + array.nbytes
        self._write_prefix(frame, num_header_bytes, payload)
        return buffers

    def _write_prefix(self, frame: bytearray, num_header_bytes: int, num_payload_bytes: int) -> None:
        if num_header_bytes > MAX_HEADER_BYTES:
            raise ValueError(
                f"a message has at most {MAX_HEADER_BYTES} bytes beside its arrays, found {num_header_bytes}"
            )
        if len(frame) + num_payload_bytes > self.max_bytes:
            raise ValueError(
                f"a frame has at most {self.max_bytes} bytes, found {len(frame) + num_payload_bytes}; send it in parts"
            )
        PREFIX.pack_into(frame, 0, MAGIC, VERSION, 0, num_header_bytes, num_payload_bytes)

    def decode(self, frame: Buffer) -> tuple[Any, list[Array]]:
        """The message and its arrays, which are views of `frame`. Raises DecodeError and nothing else."""
        size = len(frame)
        if size < PREFIX.size:
            raise DecodeError(f"a frame has at least {PREFIX.size} bytes, found {size}")
        if size > self.max_bytes:
            raise DecodeError(f"a frame has at most {self.max_bytes} bytes, found {size}")
        magic, version, flags, num_header_bytes, num_payload_bytes = PREFIX.unpack_from(frame)
        if magic != MAGIC or version != VERSION or flags:
            raise DecodeError(f"wanted a frame of format {VERSION}, found {magic!r} {version} with flags {flags}")
        end = PREFIX.size + num_header_bytes
        if num_header_bytes > MAX_HEADER_BYTES or end > size:
            raise DecodeError(f"header of {num_header_bytes} bytes in a frame of {size}")
        try:
            message, descriptors = self._decoder.decode(memoryview(frame)[PREFIX.size : end])
        except (ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            raise DecodeError(f"refused header: {error}") from error
        if not descriptors:
            if num_payload_bytes or end != size:
                raise DecodeError(f"{size - end} bytes behind a message without arrays")
            return message, []
        start = end + -end % ALIGNMENT
        if start + num_payload_bytes != size:
            raise DecodeError(f"wanted a frame of {start + num_payload_bytes} bytes, found {size}")
        return message, self._arrays(frame, start, descriptors)

    def _arrays(self, frame: Buffer, offset: int, descriptors: Sequence[_Descriptor]) -> list[Array]:
        arrays = []
        end = offset
        for descriptor in descriptors:
            offset = end + -end % ALIGNMENT
            dtype = DTYPES[descriptor.dtype]
            # The bound also holds with the zeros left out: numpy refuses such shapes although they need no bytes.
            extent = dtype.itemsize
            for length in descriptor.shape:
                extent *= length or 1
            if extent > self.max_bytes:
                raise DecodeError(f"array of shape {descriptor.shape} passes the bound of {self.max_bytes} bytes")
            count = 0 if 0 in descriptor.shape else extent // dtype.itemsize
            end = offset + count * dtype.itemsize
            if end > len(frame):
                raise DecodeError(f"array of shape {descriptor.shape} passes the end of its frame")
            array: Array = np.ndarray(descriptor.shape, dtype, frame, min(offset, len(frame)))
            if descriptor.dtype == _BOOL and count and array.view(np.uint8).max() > 1:
                raise DecodeError("a bool that is neither 0 nor 1")
            arrays.append(array)
        if end != len(frame):
            raise DecodeError(f"{len(frame) - end} bytes behind the last array")
        return arrays


def _contiguous(array: Array) -> Array:
    """The array as it goes on the wire: native byte order (little-endian on all hosts we run on), row-major."""
    if array.dtype not in _CODES:
        native = array.dtype.newbyteorder("=")
        if native not in _CODES:
            raise TypeError(f"arrays on the wire are bool, int, uint or float16/32/64, found {array.dtype}")
        array = array.astype(native)
    if array.ndim > MAX_DIMENSIONS:
        raise ValueError(f"arrays on the wire have at most {MAX_DIMENSIONS} dimensions, found {array.ndim}")
    return array if array.flags.c_contiguous else array.copy(order="C")
