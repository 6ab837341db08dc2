"""Fuzz the decoder: mutated frames must raise DecodeError or decode to valid values, fast and in constant memory.

python benchmarks/fuzz_wire.py --frames 1000000
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import numpy as np

from srl.api.transport import Message
from srl.base.wire import ALIGNMENT, MAX_ARRAYS, PREFIX, Codec, DecodeError

MAX_GROWTH_MB = 10
MAX_P99_MS = 1.0
LIES = (0, 1, 7, 8, 63, 64, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
OPCODES = bytes((0xC1, 0xC4, 0xC6, 0xC9, 0xCB, 0xCF, 0xD3, 0xDB, 0xDC, 0xDD, 0xDE, 0xDF))


class Step(Message, frozen=True):
    worker: str
    number: int
    ratio: float


class Report(Message, frozen=True):
    values: dict[str, list[float]]
    tree: list[list[list[int]]]
    blob: bytes
    note: str | None = None


class Empty(Message, frozen=True):
    pass


def seeds(codec: Codec) -> list[bytes]:
    """Return valid frames to be mutated."""
    array = np.arange(24, dtype=np.float32)
    frames = [
        codec.encode(Empty()),
        codec.encode(Step("actor/3", 2**40, 0.5)),
        codec.encode(Report({"loss": [1.0, 2.0], "kl": []}, [[[1, 2], []], []], b"\xdd\xff\xff\xff\xff", "note")),
        codec.encode(Step("a", 1, 1.0), [array]),
        codec.encode(Step("a", 1, 1.0), [array.reshape(2, 3, 4), array > 3, np.zeros((0, 5), np.int64), np.array(3)]),
        codec.encode(Empty(), [np.zeros(3, np.uint8)] * 20),
    ]
    return [b"".join(frame) for frame in frames]


class Mutator:
    def __init__(self, seed: int, frames: list[bytes]) -> None:
        self._random = random.Random(seed)
        self._frames = frames
        self._kinds: list[Callable[[bytearray], bytearray]] = [
            self.flip_bit,
            self.set_byte,
            self.truncate,
            self.extend,
            self.splice,
            self.lie_about_length,
            self.lie_about_arrays,
            self.nest_deeply,
            self.claim_opcode,
            self.drop_bytes,
        ]

    def next(self) -> tuple[str, bytes]:
        frame = bytearray(self._random.choice(self._frames))
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            kind = self._random.choice(self._kinds)
            frame = kind(frame) or bytearray(b"\0")
        return kind.__name__, bytes(frame)

    def flip_bit(self, frame: bytearray) -> bytearray:
        frame[self._random.randrange(len(frame))] ^= 1 << self._random.randrange(8)
        return frame

    def set_byte(self, frame: bytearray) -> bytearray:
        frame[self._random.randrange(len(frame))] = self._random.randrange(256)
        return frame

    def truncate(self, frame: bytearray) -> bytearray:
        return frame[: self._random.randrange(len(frame))]

    def extend(self, frame: bytearray) -> bytearray:
        return frame + self._random.randbytes(self._random.choice((1, 8, 64, 1000)))

    def drop_bytes(self, frame: bytearray) -> bytearray:
        start = self._random.randrange(len(frame))
        del frame[start : start + self._random.randint(1, 16)]
        return frame

    def splice(self, frame: bytearray) -> bytearray:
        other = self._random.choice(self._frames)
        return frame[: self._random.randrange(len(frame))] + other[self._random.randrange(len(other)) :]

    def lie_about_length(self, frame: bytearray) -> bytearray:
        if len(frame) < PREFIX.size:
            return frame
        magic, version, flags, header, payload = PREFIX.unpack_from(frame)
        if self._random.random() < 0.5:
            header = self._random.choice((*LIES, header + 1, max(0, header - 1))) % 2**32
        else:
            payload = self._random.choice((*LIES, payload + 1, max(0, payload - 1))) % 2**64
        PREFIX.pack_into(frame, 0, magic, version, flags, header, payload)
        return frame

    def lie_about_arrays(self, frame: bytearray) -> bytearray:
        """Return a frame with a valid prefix and random descriptors."""

        def dimension() -> object:
            return self._random.choice((*LIES, -1, 1, 2, 3, 1.5, "2", None))

        def descriptor() -> tuple[object, object]:
            dtype = self._random.choice((*range(14), -1, 2**63, "|O", "<f4", None))
            return dtype, [dimension() for _ in range(self._random.choice((0, 1, 1, 2, 3, 8, 9)))]

        count = self._random.choice((1, 1, 2, 5, MAX_ARRAYS + 1 if self._random.random() < 0.01 else 3))
        header = msgspec.msgpack.encode((["Empty"], [descriptor() for _ in range(count)]))
        payload = bytes(self._random.choice((0, 1, 64, 100, 128)))
        start = PREFIX.pack(b"SR", 1, 0, len(header), len(payload)) + header
        return bytearray(start + bytes(-len(start) % ALIGNMENT) + payload)

    def nest_deeply(self, frame: bytearray) -> bytearray:
        opening = self._random.choice((b"\x91", b"\x81\xa1a", b"\x92", b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff"))
        header = b"\x92\x94\xa6Report" * self._random.randrange(2) + opening * self._random.choice((10, 1000, 5000))
        return bytearray(PREFIX.pack(b"SR", 1, 0, len(header), 0) + header)

    def claim_opcode(self, frame: bytearray) -> bytearray:
        """Return a frame with a msgpack type byte of the largest length somewhere in the header."""
        place = self._random.randrange(min(PREFIX.size, len(frame) - 1), len(frame))
        claim = bytes((self._random.choice(OPCODES),)) + b"\xff" * 8
        frame[place : place + len(claim)] = claim
        return frame


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def fuzz(num_frames: int, seed: int) -> bool:
    codec = Codec(Step | Report | Empty)
    honest = seeds(codec)
    for frame in honest:
        codec.decode(frame)
    mutator = Mutator(seed, honest)
    for _ in range(2000):  # warmup, so that only the decoder's growth is measured
        decode(codec, mutator.next()[1])
    before = resident_mb()
    durations = np.zeros(num_frames, np.float32)
    outcomes: Counter[tuple[str, bool]] = Counter()
    start = time.perf_counter()
    for number in range(num_frames):
        kind, frame = mutator.next()
        begin = time.perf_counter()
        accepted = decode(codec, frame)
        durations[number] = time.perf_counter() - begin
        outcomes[kind, accepted] += 1
    elapsed = time.perf_counter() - start
    growth = resident_mb() - before - durations.nbytes / 2**20
    p99_ms = float(np.quantile(durations, 0.99)) * 1e3
    for kind in sorted({kind for kind, _ in outcomes}):
        print(f"{kind:18} refused {outcomes[kind, False]:8}  decoded to valid values {outcomes[kind, True]:8}")
    rate = num_frames / durations.sum(dtype=np.float64)
    print(
        f"{num_frames} frames: {num_frames / elapsed:,.0f}/s with mutation, {rate:,.0f}/s decoded, "
        f"p99 {p99_ms:.3f} ms, maximum {durations.max() * 1e3:.2f} ms, memory {growth:+.1f} MB"
    )
    return p99_ms < MAX_P99_MS and growth < MAX_GROWTH_MB


def decode(codec: Codec, frame: bytes) -> bool:
    """Return whether the frame is valid; then all of its arrays must be inside of it."""
    try:
        message, arrays = codec.decode(frame)
    except DecodeError:
        return False
    assert isinstance(message, Step | Report | Empty)
    assert sum(array.nbytes for array in arrays) <= len(frame)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    return 0 if fuzz(arguments.frames, arguments.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
