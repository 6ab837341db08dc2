"""The handshake of a TCP connection: mutual proof that both ends hold the run's secret, and session keys.

The client sends a public key made for this connection. The server answers with its own public key and a proof; the
client sends its proof. Each proof is an HMAC over both public keys, the run and the sender's role, so it is invalid in
any other connection, run or direction. Deriving the session keys takes the secret and one of the two private keys,
which are discarded at once: an attacker who learns the secret later cannot decrypt recorded traffic.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PROTOCOL_VERSION = 2
MIN_SECRET_BYTES = 16
PUBLIC_BYTES = 32  # size of an X25519 public key
KEY_BYTES = 16  # AES-128, which encrypts a fifth faster than AES-256
PROOF_BYTES = hashlib.sha256().digest_size
HELLO = struct.Struct(f"<4sBB{PUBLIC_BYTES}s")  # magic, version, encrypted or not, public key
MAGIC = b"SRLH"
ANSWER_BYTES = HELLO.size + PROOF_BYTES
CLOSED = "closed the connection during the handshake: it may hold another secret, run or protocol, or have stopped"


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


@dataclass(frozen=True)
class SessionKeys:
    """One key per direction, as seen from one end, for the lifetime of the connection."""

    outgoing: bytes = field(repr=False)
    incoming: bytes = field(repr=False)
    encrypt: bool


class ClientHandshake:
    """The client's side, without I/O: send `hello`, feed the `wanted` bytes of the answer, send the result of `feed`.
    Then `keys` are set."""

    wanted = ANSWER_BYTES

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._private = X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()
        self.hello = _hello(credentials, self._public)
        self.keys: SessionKeys | None = None

    def feed(self, answer: bytes) -> bytes:
        hello, proof = answer[: HELLO.size], answer[HELLO.size :]
        of_server = _public_key(hello, self._credentials)
        _check(proof, _proof(self._credentials, b"server", self._public, of_server))
        shared = _shared(self._private, of_server)
        to_server, to_client = _keys(self._credentials, shared, salt=self._public + of_server)
        self.keys = SessionKeys(to_server, to_client, self._credentials.encrypt)
        return _proof(self._credentials, b"client", self._public, of_server)


class ServerHandshake:
    """The server's side, without I/O: feed the `wanted` bytes and send the result of `feed`, until `keys` are set."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._private = X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()
        self._of_client: bytes | None = None
        self.wanted = HELLO.size
        self.keys: SessionKeys | None = None

    def feed(self, data: bytes) -> bytes:
        if self._of_client is None:
            self._of_client = _public_key(data, self._credentials)
            self.wanted = PROOF_BYTES
            proof = _proof(self._credentials, b"server", self._of_client, self._public)
            return _hello(self._credentials, self._public) + proof
        _check(data, _proof(self._credentials, b"client", self._of_client, self._public))
        shared = _shared(self._private, self._of_client)
        to_server, to_client = _keys(self._credentials, shared, salt=self._of_client + self._public)
        self.keys = SessionKeys(to_client, to_server, self._credentials.encrypt)
        return b""


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


def _hello(credentials: Credentials, public: bytes) -> bytes:
    return HELLO.pack(MAGIC, PROTOCOL_VERSION, credentials.encrypt, public)


def _public_key(hello: bytes, credentials: Credentials) -> bytes:
    magic, version, encrypt, public = HELLO.unpack(hello)
    if magic != MAGIC:
        raise HandshakeError("uses another protocol")
    if version != PROTOCOL_VERSION:
        raise HandshakeError(f"uses protocol version {version}, expected {PROTOCOL_VERSION}")
    if encrypt != credentials.encrypt:
        raise HandshakeError(f"has encryption={bool(encrypt)}, but this run has encryption={credentials.encrypt}")
    return bytes(public)


def _proof(credentials: Credentials, speaker: bytes, of_client: bytes, of_server: bytes) -> bytes:
    key = hashlib.sha256(b"srl handshake" + credentials.secret).digest()
    transcript = HELLO.pack(MAGIC, PROTOCOL_VERSION, credentials.encrypt, of_client) + of_server
    return hmac.digest(key, speaker + transcript + credentials.run.encode(), "sha256")


def _check(proof: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(proof, expected):
        raise HandshakeError("holds another secret or belongs to another run")


def _shared(private: X25519PrivateKey, public: bytes) -> bytes:
    """Compute the secret that only the two ends know. Call it only after the other end has proved itself."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise HandshakeError("sent an invalid public key") from error


def _keys(credentials: Credentials, shared: bytes, salt: bytes) -> tuple[bytes, bytes]:
    def derive(direction: bytes) -> bytes:
        info = b"srl tcp " + direction + bytes([PROTOCOL_VERSION, credentials.encrypt]) + credentials.run.encode()
        return HKDF(SHA256(), KEY_BYTES, salt=salt, info=info).derive(credentials.secret + shared)

    return derive(b"to server"), derive(b"to client")
