"""Sockets of one host: refused peers, refused packets, and sockets of dead listeners."""

from __future__ import annotations

import os
import select
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from srl.api.transport import ChannelClosed, Message
from srl.base.shared_memory import Memory
from srl.base.wire import Codec
from srl.transports.host import HostTransport
from srl.transports.host_channel import INDIRECT, INDIRECT_MARK, HostChannel


class Count(Message, frozen=True):
    number: int


FRAME = b"".join(Codec(Count).encode(Count(1)))


@pytest.fixture
def transport(tmp_path: Path) -> HostTransport:
    return HostTransport(tmp_path / "s")


@pytest.fixture
def member(transport: HostTransport) -> Iterator[tuple[socket.socket, HostChannel]]:
    """A raw socket of the same user, and the channel at its other end."""
    listener = transport.listen("server", Count)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(listener.address.removeprefix("unix:"))
    channel = listener.accept()
    assert channel is not None
    yield sock, channel
    sock.close()
    channel.close()
    listener.close()


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_only_its_user_can_enter_the_directory(tmp_path: Path) -> None:
    HostTransport(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(PermissionError, match="expected mode 700, found 755"):
        HostTransport(tmp_path / "open")


def test_the_error_for_a_long_path_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use a shorter directory"):
        HostTransport(tmp_path / ("x" * 100)).listen("server", Count)


def test_names_may_be_long_and_contain_any_characters(transport: HostTransport, tmp_path: Path) -> None:
    names = ["a" * 500, "../../escape", "a/b", "a\0b", "ünïcode"]
    listeners = [transport.listen(name, Count) for name in names]
    assert len({listener.address for listener in listeners}) == len(names)
    for listener in listeners:
        assert Path(listener.address.removeprefix("unix:")).parent == tmp_path / "s"
        listener.close()
    assert list((tmp_path / "s").iterdir()) == []


def test_a_dead_listener_is_replaced_and_a_live_one_is_not(transport: HostTransport) -> None:
    dead = transport.listen("server", Count)
    path = dead.address.removeprefix("unix:")
    with pytest.raises(ValueError, match="already listens"):
        transport.listen("server", Count)
    dead.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as crashed:
        crashed.bind(path)  # closed without unlinking, as the kernel does for a killed process
    assert Path(path).exists()
    with pytest.raises(ChannelClosed, match="nothing listens"):
        transport.connect(dead.address, Count)
    alive = transport.listen("server", Count)
    channel = transport.connect(alive.address, Count)
    channel.close()
    alive.close()
    assert not Path(path).exists()


def test_peers_of_another_user_are_refused_on_both_sides(transport: HostTransport, tmp_path: Path) -> None:
    strict = HostTransport(tmp_path / "s", user=os.getuid() + 1)
    listener = strict.listen("server", Count)
    channel = transport.connect(listener.address, Count)
    assert listener.accept() is None
    assert strict.refusals.counts == {"user": 1}
    with pytest.raises(ChannelClosed):
        channel.receive()
    with pytest.raises(ChannelClosed, match="served by user"):
        strict.connect(listener.address, Count)
    channel.close()
    listener.close()


@pytest.mark.parametrize(
    "packet",
    [
        b"garbage",
        FRAME[:-1],
        FRAME + b"\0",
        bytes(70_000),
        INDIRECT.pack(INDIRECT_MARK, 100_000),
        INDIRECT.pack(INDIRECT_MARK, 2**63),
    ],
)
def test_invalid_packets_close_the_channel(
    transport: HostTransport, member: tuple[socket.socket, HostChannel], packet: bytes
) -> None:
    sock, channel = member
    sock.send(FRAME)
    sock.send(packet)
    received = channel.receive()
    assert received is not None
    assert received[0] == Count(1)
    for _ in range(2):
        with pytest.raises(ChannelClosed, match="violated the protocol"):
            channel.receive()
    assert transport.refusals.counts == {"frame": 1}
    assert sock.recv(10) == b""


def test_unexpected_descriptors_are_closed(
    transport: HostTransport, member: tuple[socket.socket, HostChannel], tmp_path: Path
) -> None:
    sock, channel = member
    memory = Memory.create("test", 4096)
    before = num_descriptors()
    socket.send_fds(sock, [FRAME], [memory.fd, memory.fd])
    with pytest.raises(ChannelClosed, match="unexpected descriptor"):
        channel.receive()
    assert num_descriptors() <= before
    memory.close()


def readable_pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


@pytest.mark.parametrize("kind", ["pipe", "file", "empty", "short"])
def test_descriptors_of_the_wrong_kind_are_closed(
    member: tuple[socket.socket, HostChannel], tmp_path: Path, kind: str
) -> None:
    sock, channel = member
    (tmp_path / "file").write_bytes(bytes(100_000))
    descriptors = {
        "pipe": readable_pipe,
        "file": lambda: os.open(tmp_path / "file", os.O_RDWR),
        "empty": lambda: os.memfd_create("empty"),
        "short": lambda: Memory.create("short", 4096).fd,
    }
    descriptor = descriptors[kind]()
    before = num_descriptors()
    packet = FRAME if kind == "empty" else INDIRECT.pack(INDIRECT_MARK, 100_000)
    socket.send_fds(sock, [packet], [descriptor])
    with pytest.raises(ChannelClosed, match="violated the protocol"):
        channel.receive()
    assert num_descriptors() == before
    os.close(descriptor)


def test_a_frame_larger_than_what_its_sender_allocated_is_refused(
    transport: HostTransport, member: tuple[socket.socket, HostChannel]
) -> None:
    """A sparse file of any size costs its sender nothing."""
    sock, channel = member
    descriptor = os.memfd_create("sparse")
    os.truncate(descriptor, 2**27)
    socket.send_fds(sock, [INDIRECT.pack(INDIRECT_MARK, 2**27)], [descriptor])
    os.close(descriptor)
    with pytest.raises(ChannelClosed, match="of which 0 exist"):
        channel.receive()
    assert transport.refusals.counts == {"frame": 1}


def test_a_frame_that_does_not_fit_into_memory_is_refused(
    transport: HostTransport, member: tuple[socket.socket, HostChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("cannot allocate")

    sock, channel = member
    descriptor = os.memfd_create("frame")
    os.write(descriptor, bytes(100_000))
    socket.send_fds(sock, [INDIRECT.pack(INDIRECT_MARK, 100_000)], [descriptor])
    os.close(descriptor)
    before = num_descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", fail)
        with pytest.raises(ChannelClosed, match="cannot allocate"):
            channel.receive()
    assert transport.refusals.counts == {"memory": 1}
    assert num_descriptors() == before


def test_large_messages_leave_no_descriptors_behind(transport: HostTransport) -> None:
    listener = transport.listen("server", Count)
    near = transport.connect(listener.address, Count)
    far = listener.accept()
    assert far is not None
    before = num_descriptors()
    kept = []
    for number in range(50):
        near.send(Count(number), [np.full(50_000, number)])
        received = far.receive()
        assert received is not None
        kept.append(received[1][0])
    assert num_descriptors() == before
    for number in range(2000):  # more than the kernel takes, so that some still wait here
        near.send(Count(number), [np.zeros(100)], None)
    memory = Memory.create("test", 4096)
    near.send(Count(1), [np.zeros(50_000)], memory)
    assert not near.flush()
    memory.close()
    near.close()
    far.close()
    far.close()
    listener.close()


def test_the_channel_wakes_its_receiver(transport: HostTransport) -> None:
    listener = transport.listen("server", Count)
    near = transport.connect(listener.address, Count)
    assert select.select([listener], [], [], 5)[0]
    far = listener.accept()
    assert far is not None
    assert not select.select([far], [], [], 0)[0]
    near.send(Count(1))
    assert select.select([far], [], [], 5)[0]
    far.receive()
    near.close()
    assert select.select([far], [], [], 5)[0]
    far.close()
    listener.close()
