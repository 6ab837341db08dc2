"""Fuzz live channels: bytes that no member of the run sent must be refused, and never reach the decoder.

python benchmarks/fuzz_channels.py --cases 1000000

Three kinds of cases alternate. TCP: records over a loopback connection are altered, cut, replayed, moved, spliced or
get other lengths, and arrive in pieces; only the records before the first change may be received. Host: altered packets
and memfds that do not hold what they announce. Handshake: altered first messages.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from fuzz_wire import LIES, Empty, Mutator, Report, Step, resident_mb, seeds

from srl.api.transport import ChannelClosed
from srl.base.wire import Buffer, Codec
from srl.transports.endpoints import Refusals
from srl.transports.handshake import ClientHandshake, Credentials, HandshakeError, ServerHandshake, SessionKeys
from srl.transports.host_channel import INDIRECT, INDIRECT_MARK, HostChannel
from srl.transports.noise import KEY_BYTES, TAG_BYTES
from srl.transports.tcp_channel import TcpChannel
from srl.transports.tcp_records import LENGTH, SHORT_BYTES, RecordCodecs

MAX_GROWTH_MB = 50
LENGTHS = (*LIES, SHORT_BYTES, SHORT_BYTES + 1, 2**20, 2**28, 2**28 + 1, 2**34)
SIZES = (0, 0, 0, 10, 10, 100, 100, 1000, 1000, 20_000, 70_000, 300_000)
NUM_SESSIONS = 300
MESSAGES = Step | Report | Empty
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, so that no port waits


class Stream:
    """The receiving end of a connection in memory, which returns at most `step` bytes at a time, then the end."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data = memoryview(data)
        self._step = step
        self._open = True

    def recv_into(self, room: memoryview) -> int:
        size = min(len(room), self._step, len(self._data))
        room[:size] = self._data[:size]
        self._data = self._data[size:]
        return size

    def fileno(self) -> int:
        return 0 if self._open else -1

    def close(self) -> None:
        self._open = False

    def setsockopt(self, *_: int) -> None:
        pass

    def shutdown(self, _: int) -> None:
        pass


class Session(NamedTuple):
    """A member's connection that an attacker recorded, and records of another one."""

    encrypt: bool
    key: bytes
    records: list[bytes]
    foreign: list[bytes]


class Tcp:
    """Connections over which an attacker replaces the records of a member; one in twenty over the loopback."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._server = socket.create_server(("127.0.0.1", 0), backlog=16)
        self._codec = Codec(MESSAGES)
        self._sessions = [self._session() for _ in range(NUM_SESSIONS)]
        self.refusals = Refusals()

    def _session(self) -> Session:
        encrypt, keys = self._random.random() < 0.5, [self._random.randbytes(KEY_BYTES) for _ in range(2)]
        records = []
        for key in keys:
            encoder = RecordCodecs.of(SessionKeys(key, key, encrypt)).outgoing
            records.append([b"".join(encoder.encode(self._frame(number))) for number in range(3)])
        return Session(encrypt, keys[0], *records)

    def _frame(self, number: int) -> list[Buffer]:
        size = self._random.choice(SIZES)
        return self._codec.encode(Step("actor/3", number, 0.5), [np.zeros(size, np.uint8)] if size else [])

    def run(self) -> str:
        session = self._random.choice(self._sessions)
        original = b"".join(session.records)
        kind = self._random.choice(("flip", "cut", "drop", "repeat", "swap", "splice", "length", "inject", "reverse"))
        altered = self._altered(kind, session.records, session.foreign)
        same = num_equal(original, altered)
        if same == len(original) == len(altered):
            return "tcp unchanged"
        honest = sum(end <= same for end in itertools.accumulate(map(len, session.records)))
        records = RecordCodecs.of(SessionKeys(session.key, session.key, session.encrypt))
        step = self._random.choice((2**30, 2**30, 4096, 100)) if len(altered) < 5000 else 2**30
        before = self.refusals.counts.total()
        live = self._random.random() < 0.05
        received = (self._over_loopback if live else self._in_memory)(altered, step, records)
        assert received == list(range(honest)), (session, kind, received, honest)
        outcome = "refused" if self.refusals.counts.total() > before else "ended by its sender"
        return f"tcp {'live' if live else 'memory'} {kind}: {outcome}"

    def _altered(self, kind: str, records: list[bytes], foreign: list[bytes]) -> bytes:
        choose, whole = self._random, b"".join(records)
        number, place = choose.randrange(3), choose.randrange(len(whole))
        if kind == "flip":
            place = choose.choice((place, min(place, 40)))
            return whole[:place] + bytes([whole[place] ^ 1 << choose.randrange(8)]) + whole[place + 1 :]
        if kind == "cut":
            return whole[:place]
        if kind == "drop":
            return whole[:place] + whole[place + choose.randint(1, 64) :]
        if kind == "repeat":
            return b"".join([*records[: number + 1], *records[number:]])
        if kind == "swap":
            return b"".join([*records[:number], *records[number + 1 :], records[number]])
        if kind == "splice":
            return b"".join([*records[:number], foreign[number], *records[number:]])
        if kind == "length":
            length = LENGTH.pack(choose.choice(LENGTHS) % 2**64)
            return b"".join([*records[:number], length + records[number][LENGTH.size :], *records[number + 1 :]])
        if kind == "inject":
            added = LENGTH.pack(choose.choice(LENGTHS) % 2**64) + choose.randbytes(choose.choice((0, TAG_BYTES, 500)))
            return b"".join([*records[:number], added, *records[number:]])
        return b"".join(reversed(records))

    def _in_memory(self, data: bytes, step: int, records: RecordCodecs) -> list[int]:
        sock: Any = Stream(data, step)
        return drain(TcpChannel(sock, self._codec, "attacker", self.refusals, records))[0]

    def _over_loopback(self, data: bytes, step: int, records: RecordCodecs) -> list[int]:
        attacker = socket.create_connection(self._server.getsockname())
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock, _ = self._server.accept()
        for end in (sock, attacker):
            end.setblocking(False)
        channel = TcpChannel(sock, self._codec, "attacker", self.refusals, records)
        received: list[int] = []
        sent, ended = 0, False
        while not ended:  # in pieces, with a receive after each
            with contextlib.suppress(BlockingIOError, ConnectionError):
                sent += attacker.send(data[sent : sent + step])
                if sent == len(data):
                    attacker.shutdown(socket.SHUT_WR)
            more, ended = drain(channel)
            received += more
        attacker.close()
        channel.close()
        return received


def drain(channel: TcpChannel) -> tuple[list[int], bool]:
    """Return the numbers of the messages that have arrived, and whether the channel has ended."""
    received: list[int] = []
    try:
        while (message := channel.receive()) is not None:
            assert isinstance(message[0], Step)
            received.append(message[0].number)
    except ChannelClosed:
        return received, True
    return received, False


def num_equal(one: bytes, other: bytes) -> int:
    """Return the number of equal bytes before the first difference."""
    size = min(len(one), len(other))
    different = np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    return int(different.argmax()) if different.any() else size


class Host:
    """Packets on a host's own sockets, with and without a memfd."""

    def __init__(self, generator: random.Random, mutator: Mutator) -> None:
        self._random = generator
        self._mutator = mutator
        self._codec = Codec(MESSAGES)
        self.refusals = Refusals()

    def run(self) -> str:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        far.setblocking(False)
        channel = HostChannel(far, self._codec, "attacker", self.refusals)
        frame, descriptors = self._mutator.next()[1] or b"\0", []
        kind = self._random.choice(("packet",) * 18 + ("descriptor", "announced"))
        if kind != "packet":
            descriptors = [os.memfd_create("fuzz")]
            os.truncate(descriptors[0], self._random.choice((0, 4096, 100_000, 2**28, 2**40)))
            os.pwrite(descriptors[0], frame, 0)
        if kind == "announced":
            size = self._random.choice((os.fstat(descriptors[0]).st_size, *LENGTHS)) % 2**64
            frame = INDIRECT.pack(INDIRECT_MARK, size)
        try:
            socket.send_fds(near, [frame[:200_000]], descriptors)
            received = channel.receive()
            assert received is not None
            if received[2] is not None:
                received[2].close()
            return f"host {kind}: decoded to valid values"
        except ChannelClosed:
            return f"host {kind}: refused"
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            near.close()
            channel.close()


class Handshake:
    """First messages of a handshake, altered in one place, of another endpoint, or repeated."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._credentials = Credentials(bytes(32), "run")
        self._hellos = {
            endpoint: [ClientHandshake(self._credentials, endpoint).hello for _ in range(NUM_SESSIONS)]
            for endpoint in ("server", "other")
        }

    def run(self) -> str:
        kind = self._random.choice(("flip", "flip", "garbage", "endpoint", "confirmation"))
        hello = bytearray(self._random.choice(self._hellos["other" if kind == "endpoint" else "server"]))
        if kind == "flip":
            hello[self._random.randrange(len(hello))] ^= 1 << self._random.randrange(8)
        elif kind == "garbage":
            hello[self._random.choice((0, 6)) :] = self._random.randbytes(len(hello))
        server = ServerHandshake(self._credentials, "server")
        try:
            server.feed(bytes(hello[: server.wanted]))
            server.feed(self._random.randbytes(server.wanted))
        except HandshakeError:
            return f"handshake {kind}: refused"
        raise AssertionError(f"accepted: {bytes(hello)!r}")


def cases(seed: int) -> Iterator[str]:
    generator = random.Random(seed)
    kinds = Tcp(generator), Host(generator, Mutator(seed, seeds(Codec(MESSAGES)))), Handshake(generator)
    while True:
        for kind in (kinds[0], kinds[0], kinds[0], kinds[1], kinds[2]):
            yield kind.run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    stream = cases(arguments.seed)
    for _ in itertools.islice(stream, min(2000, arguments.cases)):  # warmup, so that only growth is measured
        pass
    before, num_descriptors, begin = resident_mb(), len(os.listdir("/proc/self/fd")), time.perf_counter()
    outcomes = Counter(itertools.islice(stream, arguments.cases))
    elapsed, growth = time.perf_counter() - begin, resident_mb() - before
    for outcome in sorted(outcomes):
        print(f"{outcome:45} {outcomes[outcome]:8}")
    num_leaked = len(os.listdir("/proc/self/fd")) - num_descriptors
    rate = arguments.cases / elapsed
    print(f"{arguments.cases} cases: {rate:,.0f}/s, memory {growth:+.1f} MB, descriptors {num_leaked:+}")
    return 0 if growth < MAX_GROWTH_MB and not num_leaked else 1


if __name__ == "__main__":
    sys.exit(main())
