"""Frames survive a round trip, and everything else is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from srl.api.transport import Message
from srl.base.wire import ALIGNMENT, DTYPES, MAX_HEADER_BYTES, PREFIX, Codec, DecodeError

FUZZER = Path(__file__).parents[2] / "benchmarks" / "fuzz_wire.py"


class Scalar(Message, frozen=True):
    number: int
    words: str = ""
    ratio: float | None = None


class Nested(Message, frozen=True):
    values: dict[str, list[int]]
    blob: bytes = b""


class Unknown(Message, frozen=True):
    number: int


CODEC = Codec(Scalar | Nested)

messages = st.one_of(
    st.builds(
        Scalar,
        st.integers(-(2**63), 2**64 - 1),
        st.text(max_size=50),
        st.none() | st.floats(allow_nan=False),
    ),
    st.builds(
        Nested,
        st.dictionaries(st.text(max_size=10), st.lists(st.integers(-(2**31), 2**31), max_size=10), max_size=5),
        st.binary(max_size=100),
    ),
)
shapes = hnp.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=3)
arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def frame_of(message: msgspec.Struct, arrays: list[np.ndarray[Any, Any]] | None = None) -> bytearray:
    return bytearray().join(CODEC.encode(message, arrays or []))


def forge(header: Any, payload: bytes = b"") -> bytes:
    """Build a frame with a valid prefix around any header."""
    encoded = msgspec.msgpack.encode(header)
    frame = PREFIX.pack(b"SR", 1, 0, len(encoded), len(payload)) + encoded
    return frame + bytes(-len(frame) % ALIGNMENT) + payload if payload else frame


@given(messages, st.lists(arrays, max_size=5))
def test_frames_survive_a_round_trip(message: msgspec.Struct, sent: list[np.ndarray[Any, Any]]) -> None:
    decoded, received = CODEC.decode(frame_of(message, sent))
    assert decoded == message
    assert len(received) == len(sent)
    for one, other in zip(sent, received, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
        assert other.flags.writeable


@given(messages, st.lists(arrays, max_size=3), st.data())
def test_a_frame_with_missing_or_extra_bytes_is_refused(
    message: msgspec.Struct, sent: list[np.ndarray[Any, Any]], data: st.DataObject
) -> None:
    frame = frame_of(message, sent)
    with pytest.raises(DecodeError):
        CODEC.decode(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with pytest.raises(DecodeError):
        CODEC.decode(frame + data.draw(st.binary(min_size=1, max_size=100)))


@given(st.binary(max_size=300))
def test_random_bytes_raise_decode_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(DecodeError):
        CODEC.decode(data)


def test_decoded_arrays_are_aligned_views_of_the_frame() -> None:
    frame = frame_of(Scalar(1), [np.zeros(3, np.int8), np.zeros(3)])
    _, (first, second) = CODEC.decode(frame)
    start = np.frombuffer(frame, np.uint8).ctypes.data
    assert (first.ctypes.data - start) % ALIGNMENT == 0
    assert (second.ctypes.data - start) % ALIGNMENT == 0
    second[0] = 1.0
    _, (_, again) = CODEC.decode(frame)
    assert again[0] == 1.0


def test_contiguous_arrays_are_not_copied_by_encode() -> None:
    array = np.zeros(1000)
    buffers = CODEC.encode(Scalar(1), [array])
    array[0] = 5.0
    assert CODEC.decode(b"".join(buffers))[1][0][0] == 5.0


def test_other_byte_orders_and_strides_become_native() -> None:
    sent = np.arange(12, dtype=">i4").reshape(3, 4)[:, ::2]
    _, (received,) = CODEC.decode(frame_of(Scalar(1), [sent]))
    assert received.dtype == np.dtype("i4")
    assert received.tolist() == [[0, 2], [4, 6], [8, 10]]


def test_encode_refuses_what_decode_would_refuse() -> None:
    with pytest.raises(TypeError, match="cannot send Unknown on this channel, which carries Nested, Scalar"):
        CODEC.encode(Unknown(1))
    for dtype in ("O", "U3", "S3", "c8", "M8[s]", "g", "V4"):
        with pytest.raises(TypeError, match="arrays on the wire"):
            CODEC.encode(Scalar(1), [np.zeros(2, dtype)])
    with pytest.raises(ValueError, match="at most 8 dimensions"):
        CODEC.encode(Scalar(1), [np.zeros((1,) * 9)])
    with pytest.raises(ValueError, match="at most 1024 arrays"):
        CODEC.encode(Scalar(1), [np.zeros(1)] * 1025)
    with pytest.raises(ValueError, match="bytes before arrays"):
        CODEC.encode(Nested({}, bytes(MAX_HEADER_BYTES)))
    with pytest.raises(ValueError, match="8064 bytes, limit 1000"):
        Codec(Scalar, max_bytes=1000).encode(Scalar(1), [np.zeros(1000)])


@pytest.mark.parametrize(
    ("dtype", "shape", "payload"),
    [
        (2, [2**62, 4], bytes(64)),
        (4, [2**32, 2**32], bytes(64)),
        (4, [2**61], bytes(64)),
        (4, [2**63], bytes(64)),
        (1, [0, 2**62], b""),
        (1, [0] + [2**40] * 7, b""),
        (1, [1] * 9, bytes(1)),
        (1, [-1], bytes(1)),
        (1, [1.0], bytes(1)),
        (1, "1", bytes(1)),
        (12, [1], bytes(1)),
        (-1, [1], bytes(1)),
        ("|O", [1], bytes(8)),
        (1, [2], bytes(1)),
        (1, [1], bytes(2)),
        (0, [1], b"\x02"),
    ],
)
def test_false_array_descriptors_are_refused(dtype: object, shape: object, payload: bytes) -> None:
    message = ["Scalar", 1, "", None]
    with pytest.raises(DecodeError):
        CODEC.decode(forge((message, [(dtype, shape)]), payload))


def test_a_forged_frame_with_a_valid_header_is_accepted() -> None:
    message, (array,) = CODEC.decode(forge((["Scalar", 1, "", None], [(1, [2])]), bytes(2)))
    assert message == Scalar(1)
    assert array.tolist() == [0, 0]


@pytest.mark.parametrize(
    "header",
    [
        (["Unknown", 1], []),
        (["Scalar", "one"], []),
        (["Scalar", 1, "", None, "more"], []),
        (["Scalar"], []),
        (["Nested", {"a": [1, "b"]}], []),
        (["Scalar", 1]),
        (["Scalar", 1, "", None], [], []),
        ({"Scalar": 1}, []),
        (["Scalar", 1, "", None], [(1, [0])] * 1025),
    ],
)
def test_headers_of_the_wrong_type_are_refused(header: object) -> None:
    with pytest.raises(DecodeError):
        CODEC.decode(forge(header))


def test_false_lengths_do_not_allocate_memory() -> None:
    for header_length, payload_length in ((2**32 - 1, 0), (10, 2**63), (0, 2**64 - 1), (MAX_HEADER_BYTES + 1, 0)):
        with pytest.raises(DecodeError):
            CODEC.decode(PREFIX.pack(b"SR", 1, 0, header_length, payload_length) + bytes(100))


def test_a_codec_may_have_one_type_and_a_small_limit() -> None:
    codec = Codec(Scalar, max_bytes=100)
    assert codec.decode(b"".join(codec.encode(Scalar(3)))) == (Scalar(3), [])
    with pytest.raises(DecodeError, match="101 bytes, limit 100"):
        codec.decode(bytes(101))


def test_a_short_fuzz_finds_nothing() -> None:
    result = subprocess.run(
        [sys.executable, str(FUZZER), "--frames", "20000"], capture_output=True, text=True, timeout=200, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
