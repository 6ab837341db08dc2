"""Who may talk: a mutual proof that both ends hold the run's secret, without I/O, and the keys that follow from it.

The client sends a public key that was made for this connection, the server answers with its own and a proof, the
client sends its proof. Each proof is an HMAC over everything said so far, the run and who speaks, so it is worth
nothing in another session, run or direction. The session's keys need the secret and one of the private keys, which are
forgotten at once: who learns the secret later cannot read what he recorded before.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PROTOCOL_VERSION = 2
MIN_SECRET_BYTES = 16
PUBLIC_BYTES = 32  # of X25519
KEY_BYTES = 16  # AES-128: encrypts a fifth faster than AES-256
PROOF_BYTES = hashlib.sha256().digest_size
HELLO = struct.Struct(f"<4sBB{PUBLIC_BYTES}s")  # magic, version, encrypted or not, public key
MAGIC = b"SRLH"
ANSWER_BYTES = HELLO.size + PROOF_BYTES


class HandshakeError(ConnectionError):
    """The other end is not one of ours."""


@dataclass(frozen=True)
class Credentials:
    """What both ends must agree on before a word is exchanged. The secret never shows in a repr."""

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
    """One key per direction, seen from one end; they live as long as the connection."""

    outgoing: bytes = field(repr=False)
    incoming: bytes = field(repr=False)
    encrypt: bool


class ClientHandshake:
    """Send `hello`, feed the `wanted` bytes of the answer, send what `feed` returns; then `keys` are there."""

    wanted = ANSWER_BYTES

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._private = X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()
        self.hello = _hello(credentials, self._public)
        self.keys: SessionKeys | None = None

    def feed(self, answer: bytes) -> bytes:
        hello, proof = answer[: HELLO.size], answer[HELLO.size :]
        of_server = _public_of(hello, self._credentials)
        _check(proof, _proof(self._credentials, b"server", self._public, of_server))
        to_server, to_client = _keys(
            self._credentials, _shared(self._private, of_server), salt=self._public + of_server
        )
        self.keys = SessionKeys(to_server, to_client, self._credentials.encrypt)
        return _proof(self._credentials, b"client", self._public, of_server)


class ServerHandshake:
    """Feed the `wanted` bytes and send what `feed` returns, until `keys` are there."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._private = X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()
        self._of_client: bytes | None = None
        self.wanted = HELLO.size
        self.keys: SessionKeys | None = None

    def feed(self, data: bytes) -> bytes:
        if self._of_client is None:
            self._of_client = _public_of(data, self._credentials)
            self.wanted = PROOF_BYTES
            proof = _proof(self._credentials, b"server", self._of_client, self._public)
            return _hello(self._credentials, self._public) + proof
        _check(data, _proof(self._credentials, b"client", self._of_client, self._public))
        to_server, to_client = _keys(
            self._credentials, _shared(self._private, self._of_client), salt=self._of_client + self._public
        )
        self.keys = SessionKeys(to_client, to_server, self._credentials.encrypt)
        return b""


def _hello(credentials: Credentials, public: bytes) -> bytes:
    return HELLO.pack(MAGIC, PROTOCOL_VERSION, credentials.encrypt, public)


def _public_of(hello: bytes, credentials: Credentials) -> bytes:
    magic, version, encrypt, public = HELLO.unpack(hello)
    if magic != MAGIC:
        raise HandshakeError("speaks another protocol")
    if version != PROTOCOL_VERSION:
        raise HandshakeError(f"speaks version {version} of the protocol, wanted {PROTOCOL_VERSION}")
    if encrypt != credentials.encrypt:
        raise HandshakeError(f"wants encryption {bool(encrypt)}, this run has {credentials.encrypt}")
    return bytes(public)


def _proof(credentials: Credentials, speaker: bytes, of_client: bytes, of_server: bytes) -> bytes:
    key = hashlib.sha256(b"srl handshake" + credentials.secret).digest()
    said = HELLO.pack(MAGIC, PROTOCOL_VERSION, credentials.encrypt, of_client) + of_server
    return hmac.digest(key, speaker + said + credentials.run.encode(), "sha256")


def _check(proof: bytes, wanted: bytes) -> None:
    if not hmac.compare_digest(proof, wanted):
        raise HandshakeError("holds another secret or belongs to another run")


def _shared(private: X25519PrivateKey, public: bytes) -> bytes:
    """What only the two ends of this connection can work out. Asked for after the other end has proved itself."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise HandshakeError("sent a public key that is none") from error


def _keys(credentials: Credentials, shared: bytes, salt: bytes) -> tuple[bytes, bytes]:
    def derive(direction: bytes) -> bytes:
        info = b"srl tcp " + direction + bytes([PROTOCOL_VERSION, credentials.encrypt]) + credentials.run.encode()
        return HKDF(SHA256(), KEY_BYTES, salt=salt, info=info).derive(credentials.secret + shared)

    return derive(b"to server"), derive(b"to client")
