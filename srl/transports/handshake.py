"""The handshake of a TCP connection: mutual proof that both ends belong to one run, and session keys.

It is `Noise_NNpsk0_25519_AESGCM_SHA256` (`noise.py`) with empty payloads. The pre-shared key comes from the run's
secret. The prologue, which both ends must agree on, holds the protocol version, the mode, the run and the name of the
endpoint: a client that reaches another endpoint, for example because a port was reused, is refused. The client then
sends an empty transport message. Before it arrives, the server cannot tell a client from the replay of a first message
that it has forgotten.
"""

from __future__ import annotations

import hashlib
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from srl.transports.noise import PUBLIC_BYTES, TAG_BYTES, NoiseError, NoiseHandshake, nonce

PROTOCOL_VERSION = 3
MIN_SECRET_BYTES = 16
MAGIC = b"SRLH"
OPENING = struct.Struct("<4sBB")  # magic, version, encrypted or not; in the clear, for better error messages
MESSAGE_BYTES = PUBLIC_BYTES + TAG_BYTES
HELLO_BYTES = OPENING.size + MESSAGE_BYTES
MAX_SEEN_KEYS = 10_000  # about 1 MB per endpoint
REPLAYED = "repeated the first message of another client"
CLOSED = (
    "closed the connection during the handshake: it may hold another secret, run or protocol, be another endpoint, "
    "or have stopped"
)


class HandshakeError(ConnectionError):
    """The other end did not prove that it belongs to the run."""


class ConnectFailed(HandshakeError):
    """TCP could not connect: the host is unreachable, or nothing listens there."""


@dataclass(frozen=True)
class Credentials:
    """Values that must be the same at both ends. The secret never appears in a repr."""

    secret: bytes = field(repr=False)
    run: str
    encrypt: bool = False

    def __post_init__(self) -> None:
        if len(self.secret) < MIN_SECRET_BYTES:
            raise ValueError(
                f"the run's secret needs at least {MIN_SECRET_BYTES} bytes, found {len(self.secret)}; "
                "use secrets.token_bytes(32)"
            )

    @property
    def opening(self) -> bytes:
        return OPENING.pack(MAGIC, PROTOCOL_VERSION, self.encrypt)

    def noise(self, initiator: bool, endpoint: str) -> NoiseHandshake:
        """Return one end of a handshake with the endpoint of this name."""
        texts = [text.encode() for text in (self.run, endpoint)]
        prologue = self.opening + b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        return NoiseHandshake(initiator, prologue, hashlib.sha256(b"SRL pre-shared key" + self.secret).digest())


@dataclass(frozen=True)
class SessionKeys:
    """One AES-256 key per direction, as seen from one end. The handshake used nonce 0 of the client's key."""

    outgoing: bytes = field(repr=False)
    incoming: bytes = field(repr=False)
    encrypt: bool


class ClientHandshake:
    """The client's side, without I/O: send `hello`, feed the `wanted` bytes of the answer, send the result of `feed`.
    Then `keys` are set."""

    wanted = MESSAGE_BYTES

    def __init__(self, credentials: Credentials, endpoint: str) -> None:
        self._encrypt = credentials.encrypt
        self._noise = credentials.noise(True, endpoint)
        self.hello = credentials.opening + self._noise.write_message()
        self.keys: SessionKeys | None = None

    def feed(self, answer: bytes) -> bytes:
        try:
            self._noise.read_message(answer)
        except NoiseError as error:
            raise HandshakeError(str(error)) from error
        to_server, to_client = self._noise.split()
        self.keys = SessionKeys(to_server, to_client, self._encrypt)
        return AESGCM(to_server).encrypt(nonce(0), b"", b"")


class SeenKeys:
    """The newest public keys of authentic first messages. A client never uses a key twice, so a key that is known here
    was replayed; refusing it saves the server a Diffie-Hellman key. Strangers cannot add keys."""

    def __init__(self) -> None:
        self._keys: dict[bytes, None] = {}  # oldest first

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def add(self, key: bytes) -> None:
        self._keys[key] = None
        if len(self._keys) > MAX_SEEN_KEYS:
            del self._keys[next(iter(self._keys))]


class ServerHandshake:
    """The server's side, without I/O: feed the `wanted` bytes and send the result of `feed`, until `keys` are set."""

    def __init__(self, credentials: Credentials, endpoint: str, seen: SeenKeys | None = None) -> None:
        """`seen` are the keys of the endpoint's earlier clients."""
        self._credentials = credentials
        self._endpoint = endpoint
        self._seen = SeenKeys() if seen is None else seen
        self._unconfirmed: SessionKeys | None = None
        self.wanted = HELLO_BYTES
        self.keys: SessionKeys | None = None

    def feed(self, data: bytes) -> bytes:
        if self._unconfirmed is None:
            return self._answer(data)
        try:
            AESGCM(self._unconfirmed.incoming).decrypt(nonce(0), data, b"")
        except InvalidTag as error:
            raise HandshakeError(REPLAYED) from error
        self.keys = self._unconfirmed
        return b""

    def _answer(self, hello: bytes) -> bytes:
        _check_opening(hello, self._credentials)
        key = hello[OPENING.size : OPENING.size + PUBLIC_BYTES]
        if key in self._seen:
            raise HandshakeError(REPLAYED)
        noise = self._credentials.noise(False, self._endpoint)
        try:
            noise.read_message(hello[OPENING.size :])
            self._seen.add(key)
            answer = noise.write_message()
        except NoiseError as error:
            raise HandshakeError(str(error)) from error
        to_server, to_client = noise.split()
        self._unconfirmed = SessionKeys(to_client, to_server, self._credentials.encrypt)
        self.wanted = TAG_BYTES
        return answer


class SocketHandshake:
    """A handshake over a non-blocking socket, for either end. It reads only the bytes that the handshake wants: at most
    70 from either end."""

    def __init__(
        self,
        sock: socket.socket,
        handshake: ClientHandshake | ServerHandshake,
        timeout: float,
        connect_timeout: float | None = None,
    ) -> None:
        """`connect_timeout`: seconds that TCP may still take to connect; None if it is already connected."""
        self.socket = sock
        self.deadline = time.monotonic() + timeout
        self._connect_deadline = None if connect_timeout is None else time.monotonic() + connect_timeout
        self._handshake = handshake
        self._read = b""
        if self._connect_deadline is None:
            self._begin()

    def _begin(self) -> None:
        if isinstance(self._handshake, ClientHandshake):
            self._send(self._handshake.hello)

    def _connected(self) -> bool:
        if self._connect_deadline is None:
            return True
        if not is_connected(self.socket, 0.0):
            if time.monotonic() > self._connect_deadline:
                raise ConnectFailed("cannot be reached: the connection attempt timed out")
            return False
        self._connect_deadline = None
        self._begin()
        return True

    def progress(self) -> SessionKeys | None:
        """Continue without blocking. Return the keys once both ends have proved themselves. Raises HandshakeError."""
        if not self._connected():
            return None
        while self._handshake.keys is None:
            try:
                data = self.socket.recv(self._handshake.wanted - len(self._read))
            except BlockingIOError:
                if time.monotonic() > self.deadline:
                    raise HandshakeError("did not finish the handshake in time") from None
                return None
            except OSError as error:
                raise HandshakeError(f"{CLOSED} ({error})") from error
            if not data:
                raise HandshakeError(CLOSED)
            self._read += data
            if len(self._read) == self._handshake.wanted:
                self._send(self._handshake.feed(self._read))
                self._read = b""
        return self._handshake.keys

    def _send(self, data: bytes) -> None:
        try:
            # A message this short always fits into the buffer of a new connection.
            if data and self.socket.send(data) != len(data):
                raise HandshakeError("accepts no data")
        except OSError as error:
            raise HandshakeError(f"{CLOSED} ({error})") from error


def is_connected(sock: socket.socket, timeout: float) -> bool:
    """Return whether a connect completes within `timeout` seconds. Raises ConnectFailed if it fails."""
    poller = select.poll()
    poller.register(sock, select.POLLOUT)
    if not poller.poll(timeout * 1000):
        return False
    failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failure:
        raise ConnectFailed(f"cannot be reached: {os.strerror(failure)}")
    return True


def _check_opening(hello: bytes, credentials: Credentials) -> None:
    magic, version, encrypt = OPENING.unpack_from(hello)
    if magic != MAGIC:
        raise HandshakeError("uses another protocol")
    if version != PROTOCOL_VERSION:
        raise HandshakeError(f"uses protocol version {version}, expected {PROTOCOL_VERSION}")
    if encrypt != credentials.encrypt:
        raise HandshakeError(f"has encryption={bool(encrypt)}, but this run has encryption={credentials.encrypt}")
