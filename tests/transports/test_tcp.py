"""Attacks on a TCP port: their data never reaches the decoder, and honest peers are not affected."""

from __future__ import annotations

import select
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

from srl.api.transport import ChannelClosed, Message
from srl.base.tree import Array
from srl.base.wire import Buffer, Codec
from srl.transports import handshake, tcp, tcp_records
from srl.transports.handshake import (
    HELLO_BYTES,
    MESSAGE_BYTES,
    OPENING,
    PROTOCOL_VERSION,
    ClientHandshake,
    Credentials,
    HandshakeError,
    SeenKeys,
    ServerHandshake,
)
from srl.transports.noise import TAG_BYTES, NoiseHandshake
from srl.transports.tcp import TcpListener, TcpTransport
from srl.transports.tcp_channel import TcpChannel
from srl.transports.tcp_records import LENGTH, SHORT_BYTES, RecordCodecs

Result = TypeVar("Result")
SECRET = bytes(range(32))


class Count(Message, frozen=True):
    number: int


class CountingCodec(Codec):
    """Counts the frames that reach the decoder."""

    num_decoded = 0

    def decode(self, frame: Buffer) -> tuple[Any, list[Array]]:
        CountingCodec.num_decoded += 1
        return super().decode(frame)


def until(attempt: Callable[[], Result | None], *wait_on: int, timeout: float = 60.0) -> Result:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        result = attempt()
        if result is not None:
            return result
        select.select(wait_on, [], [], 0.01)
    raise TimeoutError("timed out")


class Server:
    """A listener with one honest client, which must be served whatever the attackers do."""

    def __init__(self, encrypt: bool) -> None:
        CountingCodec.num_decoded = 0
        self.transport = TcpTransport(SECRET, "run", encrypt=encrypt, codec=CountingCodec)
        self.listener: TcpListener = self.transport.listen("server", Count)
        self.credentials = Credentials(SECRET, "run", encrypt)
        self.opened: list[TcpChannel | socket.socket] = []
        self.recorded = b""
        self.num_honest = 0
        self.honest = self.transport.connect(self.listener.address, Count)
        self.opened.append(self.honest)
        self.honest_far = self.accept(self.honest)
        self.check_honest()

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.transport.refusals.counts)

    @property
    def num_decoded_of_others(self) -> int:
        return CountingCodec.num_decoded - self.num_honest

    def accept(self, client: TcpChannel | None = None) -> TcpChannel:
        def attempt() -> TcpChannel | None:
            if client is not None:
                client.flush()
            return self.listener.accept()

        channel = until(attempt, self.listener.fileno())
        self.opened.append(channel)
        return channel

    def dial(self) -> socket.socket:
        """Open a raw connection, without a handshake."""
        host, port = self.listener.address.removeprefix("tcp:").removesuffix("/server").split(":")
        attacker = socket.create_connection((host, int(port)), 3.0)
        self.opened.append(attacker)
        return attacker

    def break_in(self) -> tuple[socket.socket, RecordCodecs, TcpChannel]:
        """Open a raw connection and complete the handshake, to violate the protocol afterwards."""
        member = self.dial()
        client = ClientHandshake(self.credentials, "server")
        member.sendall(client.hello)
        until(lambda: self.listener.accept() or readable(member), self.listener.fileno(), member.fileno())
        answer = member.recv(MESSAGE_BYTES, socket.MSG_WAITALL)
        proof = client.feed(answer)
        member.sendall(proof)
        self.recorded = client.hello + proof
        assert client.keys is not None
        return member, RecordCodecs.of(client.keys), self.accept()

    def hangs_up_on(self, attacker: socket.socket, *more: TcpChannel) -> bool:
        """Return True once the server has closed the connection without accepting it."""
        attacker.setblocking(False)

        def attempt() -> bool | None:
            assert self.listener.accept() is None
            for channel in more:
                channel.flush()
            try:
                return True if attacker.recv(4096) == b"" else None
            except BlockingIOError:
                return None
            except ConnectionResetError:
                return True

        return until(attempt, self.listener.fileno(), attacker.fileno())

    def refusal(self, client: TcpChannel) -> str:
        """Return the message that a refused client gets when it sends."""

        def attempt() -> str | None:
            assert self.listener.accept() is None
            try:
                client.send(Count(1))
            except ChannelClosed as error:
                return str(error)
            return None

        return until(attempt, self.listener.fileno())

    def check_honest(self) -> None:
        self.honest.send(Count(7))
        received = until(self.honest_far.receive, self.honest_far.fileno())
        assert received[0] == Count(7)
        self.num_honest += 1

    def close(self) -> None:
        for channel in self.opened:
            channel.close()
        self.listener.close()


def readable(sock: socket.socket) -> bool | None:
    return bool(select.select([sock], [], [], 0)[0]) or None


def refusal(channel: TcpChannel) -> str:
    def attempt() -> str | None:
        try:
            assert channel.receive() is None
        except ChannelClosed as error:
            return str(error)
        return None

    return until(attempt, channel.fileno())


def join(record: list[Buffer]) -> bytes:
    return b"".join(record)


@pytest.fixture(params=[False, True], ids=["authenticated", "encrypted"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    opened = Server(request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("secret", "run", "flip"),
    [(bytes(32), "run", False), (SECRET, "other", False), (SECRET, "run", True), (SECRET + b"x", "run", False)],
    ids=["other secret", "other run", "other encryption", "longer secret"],
)
def test_other_credentials_are_refused_with_a_message(server: Server, secret: bytes, run: str, flip: bool) -> None:
    attacker = TcpTransport(secret, run, encrypt=server.credentials.encrypt ^ flip)
    channel = attacker.connect(server.listener.address, Count)
    server.opened.append(channel)

    assert "secret" in server.refusal(channel)
    server.check_honest()
    until(lambda: server.listener.accept() or server.refused.get("handshake"), server.listener.fileno())
    assert server.num_decoded_of_others == 0


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100),
        bytes(1000),
        b"\xff" * 1000,
        OPENING.pack(b"SRLH", PROTOCOL_VERSION + 1, 0) + bytes(MESSAGE_BYTES),
        OPENING.pack(b"SRLH", 0, 0) + bytes(MESSAGE_BYTES),
        OPENING.pack(b"SRLH", PROTOCOL_VERSION, 7) + bytes(MESSAGE_BYTES),
    ],
)
def test_garbage_instead_of_a_hello_is_refused(server: Server, data: bytes) -> None:
    attacker = server.dial()
    attacker.sendall(data)
    assert server.hangs_up_on(attacker)
    assert server.refused == {"handshake": 1}
    assert server.num_decoded_of_others == 0
    server.check_honest()


def test_a_hello_with_a_wrong_proof_is_refused(server: Server) -> None:
    attacker = server.dial()
    attacker.sendall(ClientHandshake(server.credentials, "server").hello + bytes(TAG_BYTES))
    assert server.hangs_up_on(attacker)
    assert server.refused == {"handshake": 1}


def test_the_proof_of_the_server_is_not_accepted_from_a_client(server: Server) -> None:
    attacker = server.dial()
    attacker.sendall(ClientHandshake(server.credentials, "server").hello)
    until(lambda: server.listener.accept() or readable(attacker), server.listener.fileno())
    answer = attacker.recv(MESSAGE_BYTES, socket.MSG_WAITALL)
    attacker.sendall(answer[-TAG_BYTES:])
    assert server.hangs_up_on(attacker)
    assert server.refused == {"handshake": 1}


def test_a_recorded_connection_cannot_be_replayed(server: Server) -> None:
    member, codecs, channel = server.break_in()
    record = join(codecs.outgoing.encode(Codec(Count).encode(Count(1))))
    member.sendall(record)
    assert until(channel.receive, channel.fileno())[0] == Count(1)
    attacker = server.dial()
    attacker.sendall(server.recorded + record)
    assert server.hangs_up_on(attacker)
    assert server.num_decoded_of_others == 1
    server.check_honest()


def test_a_replayed_first_message_is_refused_before_a_key_is_made_for_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.break_in()
    monkeypatch.setattr(NoiseHandshake, "write_message", lambda *_: pytest.fail("it computed a Diffie-Hellman key"))
    attacker = server.dial()
    attacker.sendall(server.recorded[:HELLO_BYTES])
    assert server.hangs_up_on(attacker)
    assert server.refused == {"handshake": 1}


def test_the_keys_of_earlier_clients_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "MAX_SEEN_KEYS", 2)
    seen = SeenKeys()
    for key in (b"1", b"2", b"3"):
        seen.add(key)
    assert [key in seen for key in (b"1", b"2", b"3")] == [False, True, True]


def test_a_silent_connection_is_closed_at_the_deadline(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "PROOF_TIMEOUT", 0.05)
    silent, half = server.dial(), server.dial()
    half.sendall(ClientHandshake(server.credentials, "server").hello[:10])
    assert server.hangs_up_on(silent)
    assert server.hangs_up_on(half)
    assert server.refused == {"handshake": 2}
    server.check_honest()


def test_many_silent_connections_do_not_keep_an_honest_client_out(server: Server) -> None:
    crowd = [server.dial() for _ in range(tcp.MAX_UNPROVEN + 50)]
    late = server.transport.connect(server.listener.address, Count)
    server.opened.append(late)
    late.send(Count(3))
    far = server.accept(late)

    def attempt() -> Any:
        late.flush()
        return far.receive()

    assert until(attempt)[0] == Count(3)
    assert server.refused["handshake"] >= 50
    assert len(crowd) - server.refused["handshake"] <= tcp.MAX_UNPROVEN
    server.check_honest()


def test_data_on_a_connection_that_is_closed_to_make_room_is_ignored(server: Server) -> None:
    crowd = [server.dial() for _ in range(tcp.MAX_UNPROVEN)]
    for _ in range(tcp.MAX_UNPROVEN // tcp.MAX_ACCEPTS):
        assert server.listener.accept() is None
    server.dial()
    crowd[0].send(b"x")  # one poll reports both, the new connection first
    assert server.listener.accept() is None
    assert server.refused["handshake"] >= 1
    server.check_honest()


def test_keys_differ_between_connections_and_need_more_than_the_secret() -> None:
    """An attacker that recorded a connection and learns the secret later cannot derive its keys."""
    seen = set()
    credentials = Credentials(SECRET, "run", encrypt=True)
    for _ in range(2):
        client, server = ClientHandshake(credentials, "server"), ServerHandshake(credentials, "server")
        answer = server.feed(client.hello)
        server.feed(client.feed(answer))
        assert client.keys is not None
        assert server.keys is not None
        assert (client.keys.outgoing, client.keys.incoming) == (server.keys.incoming, server.keys.outgoing)
        seen |= {client.keys.outgoing, client.keys.incoming}
        late = ServerHandshake(credentials, "server")  # with the secret and the recorded hello
        late.feed(client.hello)
        assert late._unconfirmed is not None
        seen |= {late._unconfirmed.outgoing, late._unconfirmed.incoming}
        with pytest.raises(HandshakeError, match="another secret"):
            ClientHandshake(credentials, "server").feed(answer)
    assert len(seen) == 8


def test_an_invalid_public_key_is_refused() -> None:
    credentials = Credentials(SECRET, "run")
    member = credentials.noise(True, "server")
    member._mix_public(bytes(32))
    hello = credentials.opening + bytes(32) + member._encrypt_and_hash(b"")
    with pytest.raises(HandshakeError, match="invalid public key"):
        ServerHandshake(credentials, "server").feed(hello)


def test_a_client_refuses_a_server_that_cannot_prove_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        transport = TcpTransport(SECRET, "run")
        channel = transport.connect(f"tcp:127.0.0.1:{impostor.getsockname()[1]}/server", Count)
        channel.send(Count(1))
        connection, _ = impostor.accept()
        hello = connection.recv(HELLO_BYTES, socket.MSG_WAITALL)
        connection.sendall(hello[OPENING.size :])  # the client's own message: the impostor cannot write one
        assert "secret" in refusal(channel)
        assert connection.recv(100) == b"", "nothing may be sent to an impostor"
        assert transport.refusals.counts == {"handshake": 1}
        connection.close()
        channel.close()


def flipped(record: bytes, place: int) -> bytes:
    altered = bytearray(record)
    altered[place] ^= 1
    return bytes(altered)


@pytest.mark.parametrize("place", [LENGTH.size, LENGTH.size + 20, -TAG_BYTES - 1, -TAG_BYTES, -1])
def test_a_flipped_bit_is_detected_before_decoding(server: Server, place: int) -> None:
    member, codecs, channel = server.break_in()
    record = join(codecs.outgoing.encode(Codec(Count).encode(Count(1), [np.zeros(3)])))
    member.sendall(flipped(record, place))
    assert "violated the protocol" in refusal(channel)
    assert server.refused == {"frame": 1}
    assert server.num_decoded_of_others == 0
    server.check_honest()


@pytest.mark.parametrize("size", [10, 40_000, 400_000])
def test_replayed_moved_and_dropped_records_are_refused(server: Server, size: int) -> None:
    codec = Codec(Count)
    orders = {"replayed": [0, 0], "moved": [1, 0], "dropped": [0, 2]}
    for num_refused, order in enumerate(orders.values(), 1):
        member, codecs, channel = server.break_in()
        records = [
            join(codecs.outgoing.encode(codec.encode(Count(number), [np.zeros(size, np.uint8)]))) for number in range(3)
        ]
        member.setblocking(False)
        left = b"".join(records[number] for number in order)
        received: list[Message] = []
        while left:
            left = left[member.send(left) :] if select.select([], [member], [], 0)[1] else left
            if order[0] == 0 and not received:
                received = [one[0] for one in [channel.receive()] if one]
        if order[0] == 0 and not received:
            received = [until(channel.receive, channel.fileno())[0]]
        assert received == ([] if order[0] else [Count(0)])
        assert "altered, replayed, moved" in refusal(channel)
        assert server.refused == {"frame": num_refused}
    server.check_honest()


def test_a_record_of_the_other_direction_is_refused(server: Server) -> None:
    member, codecs, channel = server.break_in()
    channel.send(Count(5))
    until(lambda: readable(member), member.fileno())
    member.sendall(member.recv(4096))
    assert "violated the protocol" in refusal(channel)
    assert server.num_decoded_of_others == 0
    assert codecs.incoming is not codecs.outgoing


@pytest.mark.parametrize("claim", [0, 15, 256 * 2**20 + 1, 2**31, 2**32, 2**63, 2**64 - 1])
def test_lengths_out_of_range_are_refused_at_once(server: Server, claim: int) -> None:
    member, _, channel = server.break_in()
    member.sendall(LENGTH.pack(claim))
    assert "limit" in refusal(channel)
    assert server.refused == {"frame": 1}
    assert server.num_decoded_of_others == 0
    server.check_honest()


@pytest.mark.parametrize("claim", [SHORT_BYTES + 1, 2**24, 2**34, 2**46])
def test_an_injected_length_allocates_nothing(server: Server, claim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight injected bytes made the receiver allocate whatever they claimed, before any tag was checked."""
    monkeypatch.setattr(server.honest_far._codec, "max_bytes", 2**46)
    member, _, channel = server.break_in()
    tracemalloc.start()
    member.sendall(LENGTH.pack(claim))
    until(lambda: readable_channel(channel), channel.fileno())
    assert channel.receive() is None
    member.sendall(bytes(TAG_BYTES))
    assert "altered" in refusal(channel)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert server.listener.refused == {"frame": 1}
    server.check_honest()


def test_a_message_that_does_not_fit_into_memory_closes_only_its_channel(server: Server) -> None:
    server.honest_far._codec.max_bytes = 2**60
    member, codecs, channel = server.break_in()
    length = LENGTH.pack(2**60)
    member.sendall(length + codecs.outgoing._one_shot.encrypt(codecs.outgoing._next_nonce(0), b"", length))
    assert "does not fit into memory" in refusal(channel)
    assert server.listener.refused == {"memory": 1}
    server.check_honest()


@pytest.mark.parametrize("size", [1000, SHORT_BYTES + 1])
def test_keys_are_replaced_at_both_ends_in_step(server: Server, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_records, "REKEY_BYTES", 3 * (size + 4096))
    records = server.honest._records
    assert records is not None
    keys = set()
    for number in range(12):
        for sender, receiver in ((server.honest, server.honest_far), (server.honest_far, server.honest)):
            sender.send(Count(number), [np.full(size, number, np.uint8)])

            def attempt(sender: TcpChannel = sender, receiver: TcpChannel = receiver) -> Any:
                sender.flush()
                return receiver.receive()

            message, (array,), _ = until(attempt, receiver.fileno())
            assert message == Count(number)
            assert (array == number).all()
        keys |= {records.outgoing._key, records.incoming._key}
    assert len(keys) >= 8


def test_an_end_that_keeps_its_key_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    member, codecs, channel = server.break_in()
    codec = Codec(Count)
    for number in range(2):
        member.sendall(join(codecs.outgoing.encode(codec.encode(Count(number)))))
        assert until(channel.receive, channel.fileno())[0] == Count(number)
    late = join(codecs.outgoing.encode(codec.encode(Count(2))))
    monkeypatch.setattr(tcp_records, "REKEY_BYTES", 0)
    member.sendall(late)
    assert "altered" in refusal(channel)


def test_a_client_of_another_endpoint_is_refused_when_a_port_is_used_again(server: Server) -> None:
    """A worker that was replaced has the same name with another incarnation, and may get the same port."""
    address = server.listener.address
    port = int(address.removesuffix("/server").rpartition(":")[2])
    for wrong in (f"tcp:127.0.0.1:{port}/server.1", f"tcp:127.0.0.1:{port}/other"):
        channel = server.transport.connect(wrong, Count)
        server.opened.append(channel)
        assert "another endpoint" in server.refusal(channel)
    assert server.listener.refused["handshake"] == 2
    assert server.num_decoded_of_others == 0
    server.check_honest()


def test_half_a_record_waits_until_its_sender_closes(server: Server) -> None:
    codec = Codec(Count)
    for size in (10, 300_000):
        member, codecs, channel = server.break_in()
        record = join(codecs.outgoing.encode(codec.encode(Count(1), [np.zeros(size, np.uint8)])))
        member.sendall(record[: len(record) // 2])
        assert channel.receive() is None
        member.close()
        assert "gone" in refusal(channel)
    assert server.num_decoded_of_others == 0
    assert server.refused == {}
    server.check_honest()


def test_a_record_may_arrive_byte_by_byte(server: Server) -> None:
    member, codecs, channel = server.break_in()
    member.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(2):
        for value in join(codecs.outgoing.encode(Codec(Count).encode(Count(number)))):
            assert channel.receive() is None
            member.sendall(bytes((value,)))
            until(lambda: readable(member) or readable_channel(channel), channel.fileno())
        assert until(channel.receive, channel.fileno())[0] == Count(number)


def readable_channel(channel: TcpChannel) -> bool | None:
    return bool(select.select([channel], [], [], 0)[0]) or None


def test_the_listener_wakes_for_connections_and_for_proofs(server: Server) -> None:
    member = server.dial()
    handshake = ClientHandshake(server.credentials, "server")
    assert select.select([server.listener], [], [], 5)[0]
    assert server.listener.accept() is None
    assert not select.select([server.listener], [], [], 0)[0]
    member.sendall(handshake.hello)
    assert select.select([server.listener], [], [], 5)[0]
    assert server.listener.accept() is None
    member.sendall(handshake.feed(member.recv(MESSAGE_BYTES, socket.MSG_WAITALL)))
    assert select.select([server.listener], [], [], 5)[0]
    server.accept()


def test_two_workers_may_connect_to_each_other_before_either_accepts() -> None:
    transports = [TcpTransport(SECRET, "run") for _ in range(2)]
    listeners = [transport.listen("worker", Count) for transport in transports]
    clients = [transports[0].connect(listeners[1].address, Count), transports[1].connect(listeners[0].address, Count)]
    servers: dict[int, TcpChannel] = {}

    def attempt() -> bool | None:
        for number, listener in enumerate(listeners):
            clients[1 - number].flush()
            channel = listener.accept()
            if channel is not None:
                servers[number] = channel
        return len(servers) == 2 or None

    assert until(attempt)
    for channel in (*clients, *servers.values()):
        channel.close()
    for listener in listeners:
        listener.close()


def test_the_error_for_a_port_in_use_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is in use; choose another, or 0"):
            TcpTransport(SECRET, "run", port=port).listen("server", Count)


def test_a_transport_needs_a_secret_and_a_reachable_address() -> None:
    with pytest.raises(ValueError, match="secret needs at least 16 bytes"):
        TcpTransport(b"", "run")
    with pytest.raises(ValueError, match="address at which others reach this host"):
        TcpTransport(SECRET, "run", bind_host="0.0.0.0")
    assert "secret" not in repr(Credentials(SECRET, "run"))


def test_only_the_loopback_is_bound_by_default() -> None:
    listener = TcpTransport(SECRET, "run").listen("server", Count)
    assert listener.address.startswith("tcp:127.0.0.1:")
    listener.close()
