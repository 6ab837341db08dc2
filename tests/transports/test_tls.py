"""TLS connections: strangers, tickets that are wrong or expired, certificates of others, and lengths without bytes."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.waiting import until

from srl.api.transport import Channel, ChannelClosed, Message
from srl.base.wire import Codec
from srl.transports import tls, tls_channel
from srl.transports.join_ticket import Identity, JoinFile, JoinTicket, read_ticket
from srl.transports.tls import TlsListener, TlsTransport
from srl.transports.tls_channel import LENGTH, JoinFileRefused, knock

SCOPE = "tests"


class Count(Message, frozen=True):
    number: int


class Server:
    def __init__(self, path: Path) -> None:
        self.identity = Identity.create(path / "controller.pem")
        self.transport = TlsTransport(self.identity, SCOPE, codec=lambda messages: Codec(messages, 2**34))
        self.listener = self.transport.listen("the controller", Count)
        self.address = self.listener.address.removeprefix("tls:")
        self.ticket = self.identity.ticket("run", self.address)

    def join(self, ticket: JoinTicket, scope: str = SCOPE) -> tuple[Channel, Channel]:
        """Connect with a ticket, and return both ends. Raises ChannelClosed."""
        near = TlsTransport(ticket, scope).connect(self.listener.address, Count)
        try:
            far = until(lambda: self.listener.accept() or (near.flush() and None))
        except BaseException:
            near.close()
            raise
        return near, far

    def strangers(self, count: int) -> list[socket.socket]:
        host, port = self.address.split(":")
        return [socket.create_connection((host, int(port))) for _ in range(count)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.listener.close()


def test_a_ticket_admits_a_host_until_it_expires(server: Server) -> None:
    near, far = server.join(server.ticket)
    near.send(Count(1))
    assert until(far.receive)[0] == Count(1)
    near.close()
    far.close()
    with pytest.raises(JoinFileRefused, match="the join file has expired; copy it again"):
        server.join(server.identity.ticket("run", server.address, lifetime=-1.0))
    assert server.listener.refused == {"expired join file": 1}


def test_a_ticket_of_another_run_or_for_another_kind_of_connection_is_wrong(server: Server, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with closing(Server(tmp_path / "other").listener):
        other = Identity(tmp_path / "other" / "controller.pem")
        for ticket, scope in (
            (replace(server.ticket, proof=other.proof(server.ticket.expires)), SCOPE),
            (replace(server.ticket, expires=server.ticket.expires + 1), SCOPE),
            (server.ticket, "another"),
        ):
            with pytest.raises(JoinFileRefused, match="not one of this run"):
                server.join(ticket, scope)
    assert server.listener.refused == {"wrong join file": 3}


def test_a_client_sends_its_ticket_to_no_other_certificate(server: Server, tmp_path: Path) -> None:
    """The impostor knows the key of tickets, so that it accepts the knock, but has another certificate."""
    received: list[bytes] = []
    other = Identity.create(tmp_path / "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other.path)
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        near = TlsTransport(server.ticket, SCOPE).connect(f"tls:127.0.0.1:{impostor.getsockname()[1]}", Count)
        near.send(Count(1))
        sock, _ = impostor.accept()
        sock.recv(tls_channel.KNOCK.size, socket.MSG_WAITALL)
        sock.setblocking(False)
        stream = tls_channel.TlsStream(sock, context, server_side=True)
        complete = False

        def serve() -> None:
            nonlocal complete
            complete = complete or stream.handshake()
            buffer = memoryview(bytearray(100))
            if complete and (count := stream.read_into(buffer)):
                received.append(bytes(buffer[:count]))

        with pytest.raises(JoinFileRefused, match="has another certificate than the join file says"):
            until(lambda: near.flush() and False, serve)
        with pytest.raises(ConnectionResetError):
            until(serve)
        near.close()
        sock.close()
    assert received == []


def test_a_repeated_knock_leads_to_no_handshake(server: Server) -> None:
    recorded = knock(server.ticket, SCOPE)
    with ExitStack() as stack:
        for sock in server.strangers(2):
            stack.enter_context(sock)
            sock.sendall(recorded)
        until(lambda: server.listener.accept() or server.listener.refused == {"repeated": 1})


def test_strangers_are_refused_and_give_way(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "MAX_STRANGERS", 4)
    with ExitStack() as stack:
        silent = [stack.enter_context(sock) for sock in server.strangers(10)]
        garbage = [stack.enter_context(sock) for sock in server.strangers(3)]
        for sock in garbage:
            sock.sendall(b"GET / HTTP/1.1\r\n")
        near, far = server.join(server.ticket)
        until(lambda: server.listener.accept() or server.listener.refused["protocol"] == 3)
        assert server.listener.refused["silent"] >= 10 - 4
        assert silent[0].recv(1) == b""
        near.close()
        far.close()


def test_a_stranger_that_stops_in_the_middle_of_its_handshake_is_refused_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "OPENING_TIMEOUT", 0.0)
    with ExitStack() as stack:
        half, after = (stack.enter_context(sock) for sock in server.strangers(2))
        half.sendall(knock(server.ticket, SCOPE)[:20])
        after.sendall(knock(server.ticket, SCOPE) + b"\x16\x03\x01")
        until(lambda: server.listener.accept() or server.listener.refused == {"silent": 1, "handshake": 1})


def test_memory_grows_with_the_bytes_that_arrive_and_its_lack_refuses_the_peer(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    empty = np.empty

    def recording(size: int, kind: type) -> object:
        sizes.append(size)
        if len(sizes) > 2:
            raise MemoryError
        return empty(size, kind)

    monkeypatch.setattr(tls_channel, "GROWTH_BYTES", 1024)
    near, far = server.join(server.ticket)
    monkeypatch.setattr(np, "empty", recording)
    stream = near._stream  # type: ignore[attr-defined]
    stream.write(LENGTH.pack(2**33))
    with pytest.raises(ChannelClosed, match="no memory"):
        until(lambda: stream.write(bytes(512)) or (stream.flush() and far.receive()))
    assert sizes == [1024, 2048, 4096]
    assert server.listener.refused == {"frame": 1}
    near.close()
    far.close()


def test_a_length_beyond_the_limit_is_refused(server: Server) -> None:
    near, far = server.join(server.ticket)
    near._stream.write(LENGTH.pack(2**60))  # type: ignore[attr-defined]
    near.flush()
    with pytest.raises(ChannelClosed, match="the limit is"):
        until(far.receive)
    near.close()
    far.close()


def test_the_join_file_is_private_renewed_and_removed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = server.identity.path.with_name("join")
    now = 1e9
    monkeypatch.setattr(time, "time", lambda: now)
    file = JoinFile(path, server.identity, "run", server.address)
    first = read_ticket(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert first.expires == now + 24 * 3600
    now += 11 * 3600
    file.renew()
    assert read_ticket(path) == first
    now += 2 * 3600
    file.renew()
    assert read_ticket(path).expires == now + 24 * 3600
    assert read_ticket(path).fingerprint == first.fingerprint
    path.chmod(0o640)
    with pytest.raises(PermissionError, match="mode 600"):
        read_ticket(path)
    path.chmod(0o600)
    file.remove()
    assert not path.exists()
    assert not server.identity.path.exists()
    with pytest.raises(FileNotFoundError):
        read_ticket(path)


def test_a_controller_does_not_remove_the_join_file_of_its_successor(server: Server, tmp_path: Path) -> None:
    file = JoinFile(tmp_path / "join", server.identity, "run", server.address)
    JoinFile(tmp_path / "join", Identity.create(server.identity.path), "run", server.address)
    file.remove()
    assert read_ticket(tmp_path / "join")
    assert Identity(server.identity.path)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 32, b"[1]", b'{"run": "a"}'])
def test_a_malformed_join_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "join"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(PermissionError, match="not the join file of a run"):
        read_ticket(path)


def test_a_listener_needs_the_identity(server: Server) -> None:
    assert isinstance(server.listener, TlsListener)
    with pytest.raises(ValueError, match="takes the identity"):
        TlsTransport(server.ticket, SCOPE).listen("x", Count)


@pytest.mark.slow
def test_a_flood_of_strangers_delays_a_host_by_less_than_a_second() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "flood.py"
    ended = subprocess.run([sys.executable, str(script), "--seconds", "2"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
