"""Latency and cost of a small message, and throughput of 64 kB messages, between two processes of this host.

python benchmarks/transports.py
python benchmarks/transports.py --arrays 8      # the same bytes as eight arrays
python benchmarks/transports.py --between h0 h1 --address 10.77.0.10    # from one network namespace to another (root)

"raw socket" is what TCP gives without us: one `sendall` and one `recv_into` of the same bytes. All ways take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from srl.api.transport import Channel, ChannelClosed, Message, Transport
from srl.base.wire import Buffer, Codec
from srl.transports.endpoints import Refusals
from srl.transports.handshake import SessionKeys
from srl.transports.host import HostTransport
from srl.transports.join_ticket import Identity
from srl.transports.noise import KEY_BYTES, TAG_BYTES
from srl.transports.tcp import TcpTransport
from srl.transports.tcp_channel import TcpChannel
from srl.transports.tcp_records import LENGTH, LENGTH_RECORD_BYTES, SHORT_BYTES, AuthenticatedRecords, RecordCodecs
from srl.transports.tls import TlsTransport

Connect = Callable[[], tuple[Channel, Channel]]
RAW = "raw socket"
CLONE_NEWNET = 0x40000000


class Ping(Message, frozen=True):
    number: int
    worker: str = "actor/12"


class PlainRecords(AuthenticatedRecords):
    """No protection, to measure the cost of TCP alone. It is defined here so that no run can use it."""

    def encode(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        size, tag = sum(map(len, buffers)), bytes(TAG_BYTES)
        return [LENGTH.pack(size), *([tag] if size > SHORT_BYTES else []), *buffers, tag]

    def check_length(self, record: memoryview) -> None:
        pass

    def decode(self, record: memoryview) -> memoryview:
        return record[LENGTH.size : -TAG_BYTES]

    def decode_long(self, record: memoryview) -> memoryview:
        return record[:-TAG_BYTES]


@dataclass(frozen=True)
class Line:
    """Places of both ends of a TCP connection: network namespaces, or the current one."""

    address: str = "127.0.0.1"
    of_server: str = ""
    of_client: str = ""


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Enter a network namespace. A socket stays in the namespace in which it was created."""
    if not namespace:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as home, open(f"/run/netns/{namespace}") as there:
        for place in (there, home):
            if libc.setns(place.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
            if place is there:
                yield


def sockets(line: Line) -> tuple[socket.socket, socket.socket]:
    with inside(line.of_server):
        server = socket.create_server((line.address, 0))
    with server:
        with inside(line.of_client):
            near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for sock in (near, far):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def tcp(line: Line, kind: str) -> tuple[Channel, Channel]:
    near, far = sockets(line)
    keys = bytes(KEY_BYTES), bytes(range(KEY_BYTES))

    def channel(sock: socket.socket, outgoing: bytes, incoming: bytes) -> TcpChannel:
        sock.setblocking(False)
        plain = RecordCodecs(PlainRecords(outgoing), PlainRecords(incoming))
        records = plain if kind == "plain" else RecordCodecs.of(SessionKeys(outgoing, incoming, kind == "encrypted"))
        return TcpChannel(sock, Codec(Ping), kind, Refusals(), records)

    return channel(near, *keys), channel(far, *keys[::-1])


def host(directory: Path) -> tuple[Channel, Channel]:
    transport = HostTransport(directory)
    listener = transport.listen("benchmark", Ping)
    near = transport.connect(listener.address, Ping)
    far = listener.accept()
    listener.close()
    assert far is not None
    return near, far


def wait(channel: Channel) -> Message:
    while (received := channel.receive()) is None:
        select.select([channel], [], [])
    return received[0]


def in_child(work: Callable[[], None]) -> int:
    process = os.fork()
    if process == 0:
        try:
            work()
        except ChannelClosed:
            os._exit(0)
        os._exit(0)
    return process


def child_cpu(process: int) -> float:
    _, status, usage = os.wait4(process, 0)
    assert status == 0
    return usage.ru_utime + usage.ru_stime


def round_trips(connect: Connect, count: int) -> tuple[float, float, float]:
    """Return median and p99 of a round trip in microseconds, and the CPU time of both ends."""
    near, far = connect()

    def echo() -> None:
        near.close()
        while True:
            far.send(wait(far))

    process = in_child(echo)
    far.close()
    durations = []
    begin_cpu = time.process_time()
    for number in range(count):
        begin = time.perf_counter()
        near.send(Ping(number))
        wait(near)
        durations.append(time.perf_counter() - begin)
    cpu = time.process_time() - begin_cpu
    near.close()
    cpu += child_cpu(process)
    return statistics.median(durations) * 1e6, float(np.quantile(durations, 0.99)) * 1e6, cpu / count * 1e6


def throughput(connect: Connect, count: int, num_bytes: int, num_arrays: int) -> tuple[float, float]:
    """Return megabytes per second, and the CPU microseconds per message of both ends."""
    near, far = connect()

    def produce() -> None:
        far.close()
        arrays = [np.zeros(num_bytes // num_arrays, np.uint8) for _ in range(num_arrays)]
        wait(near)
        for number in range(count):
            near.send(Ping(number), arrays)
            while not near.flush():
                select.select([], [near], [])
        wait(near)

    process = in_child(produce)
    near.close()
    far.send(Ping(0))
    wait(far)
    begin_cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(count - 1):
        wait(far)
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    far.close()
    cpu += child_cpu(process)
    return (count - 1) * num_bytes / elapsed / 1e6, cpu / count * 1e6


def raw_throughput(line: Line, count: int, num_bytes: int) -> tuple[float, float]:
    near, far = sockets(line)

    def produce() -> None:
        far.close()
        data = bytes(num_bytes)
        for _ in range(count):
            near.sendall(data)
        near.recv(1)

    process = in_child(produce)
    near.close()
    room = bytearray(num_bytes)
    far.recv_into(room, num_bytes, socket.MSG_WAITALL)
    begin_cpu, begin = time.process_time(), time.perf_counter()
    for _ in range(count - 1):
        far.recv_into(room, num_bytes, socket.MSG_WAITALL)
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    far.close()
    cpu += child_cpu(process)
    return (count - 1) * num_bytes / elapsed / 1e6, cpu / count * 1e6


def handshakes(server: Transport, client: Transport, count: int) -> tuple[float, float]:
    """Return the median duration of connecting and proving membership, and the CPU time of both ends, in ms."""
    listener = server.listen("benchmark", Ping)
    durations, cpus = [], []
    for _ in range(count):
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        near = client.connect(listener.address, Ping)
        while (far := listener.accept()) is None:
            near.flush()
        durations.append(time.perf_counter() - begin)
        cpus.append(time.thread_time() - begin_cpu)
        near.close()
        far.close()
    listener.close()
    return statistics.median(durations) * 1e3, statistics.median(cpus) * 1e3


def record_cpu(encrypt: bool, count: int, num_bytes: int) -> float:
    """Return the median CPU microseconds of encoding a message's records at one end and decoding them at the other."""
    keys = SessionKeys(bytes(KEY_BYTES), bytes(KEY_BYTES), encrypt)
    near, far = RecordCodecs.of(keys).outgoing, RecordCodecs.of(keys).incoming
    frame = Codec(Ping).encode(Ping(0), [np.zeros(num_bytes, np.uint8)])
    costs = []
    for _ in range(count):
        begin = time.thread_time_ns()
        buffers = near.encode(frame)
        cost = time.thread_time_ns() - begin
        record = memoryview(bytearray().join(buffers))
        begin = time.thread_time_ns()
        if len(record) > SHORT_BYTES + LENGTH_RECORD_BYTES:
            far.check_length(record[:LENGTH_RECORD_BYTES])
            far.decode_long(record[LENGTH_RECORD_BYTES:])
        else:
            far.decode(record)
        costs.append(cost + time.thread_time_ns() - begin)
    return statistics.median(costs) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trips", type=int, default=20_000)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=64_000)
    parser.add_argument("--arrays", type=int, default=1, help="number of arrays that share the bytes of a message")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--between", nargs=2, default=("", ""), metavar="NETNS", help="namespaces of server and client")
    parser.add_argument("--address", default=Line.address, help="address of the server")
    arguments = parser.parse_args()
    line = Line(arguments.address, *arguments.between)
    with tempfile.TemporaryDirectory() as directory:
        identity = Identity.create(Path(directory) / "controller.pem")
        ends: dict[str, tuple[Transport, Transport]] = {
            "workers": (own := TcpTransport(bytes(32), "run"), own),
            "agents, TLS": (TlsTransport(identity, "x"), TlsTransport(identity.ticket("run", "127.0.0.1:1"), "x")),
        }
        for who, (server, client) in ends.items():
            duration, cpu = handshakes(server, client, 500)
            print(f"handshake ({who}): {duration:.2f} ms, {cpu:.2f} ms of CPU, both ends in one process")
    costs = [record_cpu(encrypt, 5000, arguments.bytes) for encrypt in (False, True)]
    print(f"records of {arguments.bytes} bytes, CPU of both ends: {costs[0]:.1f} us ({costs[1]:.1f} us encrypted)")
    with tempfile.TemporaryDirectory() as directory:
        ways: dict[str, Connect] = {
            "host": lambda: host(Path(directory)),
            "tcp plain": lambda: tcp(line, "plain"),
            "tcp authenticated": lambda: tcp(line, "authenticated"),
            "tcp encrypted": lambda: tcp(line, "encrypted"),
        }
        trips = {name: round_trips(connect, arguments.round_trips) for name, connect in ways.items()}
        flows: dict[str, list[tuple[float, float]]] = {name: [] for name in (RAW, *ways)}
        for _ in range(arguments.repeats):  # alternating, so that noise affects all alike
            flows[RAW].append(raw_throughput(line, arguments.messages, arguments.bytes))
            for name, connect in ways.items():
                flows[name].append(throughput(connect, arguments.messages, arguments.bytes, arguments.arrays))
    plain, raw = max(flows["tcp plain"])[0], max(flows[RAW])[0]
    print(
        f"{'':18}| round trip | p99     | CPU     || {arguments.bytes} bytes: best | median    | of raw | of plain "
        "| CPU"
    )
    for name, measured in flows.items():
        trip = "           |          |        "
        if name in trips:
            median, p99, cpu = trips[name]
            trip = f"{median:7.1f} us | {p99:5.0f} us | {cpu:4.1f} us"
        best, middle = max(measured)[0], statistics.median(rate for rate, _ in measured)
        print(
            f"{name:18}| {trip} || {best:14.0f} MB/s | {middle:4.0f} MB/s | {best / raw:6.0%} | {best / plain:8.0%} |"
            f" {min(cost for _, cost in measured):.1f} us"
        )


if __name__ == "__main__":
    main()
