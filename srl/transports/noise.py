"""The Noise protocol `Noise_NNpsk0_25519_AESGCM_SHA256` (noiseprotocol.org, revision 34), without I/O.

Both ends hold a pre-shared key and make a Diffie-Hellman key for each connection::

    -> psk, e
    <- e, ee

The methods carry the specification's names. A symmetric key exists from the first message on, so every payload is
encrypted, and a stranger's first message is refused at the cost of a few hashes.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PROTOCOL = b"Noise_NNpsk0_25519_AESGCM_SHA256"  # 32 bytes, so it is the initial hash as it stands
KEY_BYTES = 32
PUBLIC_BYTES = 32
TAG_BYTES = 16
NONCE_BYTES = 12
MAX_NONCE = 2**64 - 1


class NoiseError(ValueError):
    """A message was not written by an end with the same pre-shared key and prologue."""


class NoiseHandshake:
    """One end of a handshake: the initiator writes a message and reads one, the responder reads one and writes one.
    Then `split` returns the keys."""

    def __init__(self, initiator: bool, prologue: bytes, psk: bytes, ephemeral: X25519PrivateKey | None = None) -> None:
        """`ephemeral`: a fixed key for test vectors; otherwise one is made when the first message is written."""
        self.hash = PROTOCOL
        self._chaining_key = PROTOCOL
        self._key = b""
        self._nonce = 0
        self._initiator = initiator
        self._ephemeral = ephemeral
        self._remote: bytes | None = None
        self._mix_hash(prologue)
        self._mix_key_and_hash(psk)

    def write_message(self, payload: bytes = b"") -> bytes:
        """Return the next message to send. Raises NoiseError if the other end's public key is invalid."""
        if self._ephemeral is None:
            self._ephemeral = X25519PrivateKey.generate()
        public = self._ephemeral.public_key().public_bytes_raw()
        self._mix_public(public)
        if not self._initiator:
            self._mix_key(self._shared())
        return public + self._encrypt_and_hash(payload)

    def read_message(self, message: bytes) -> bytes:
        """Return the payload of the other end's message. Raises NoiseError if it is not authentic."""
        self._remote = message[:PUBLIC_BYTES]
        self._mix_public(self._remote)
        if self._initiator:
            self._mix_key(self._shared())
        return self._decrypt_and_hash(message[PUBLIC_BYTES:])

    def split(self) -> tuple[bytes, bytes]:
        """Return the keys for transport messages from the initiator and to the initiator."""
        first, second, _ = _hkdf(self._chaining_key, b"")
        return first, second

    def _shared(self) -> bytes:
        assert self._ephemeral is not None
        assert self._remote is not None
        try:
            return self._ephemeral.exchange(X25519PublicKey.from_public_bytes(self._remote))
        except ValueError as error:  # the result would be zero whatever this end's key is
            raise NoiseError("sent an invalid public key") from error

    def _mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def _mix_key(self, material: bytes) -> None:
        self._chaining_key, self._key, _ = _hkdf(self._chaining_key, material)
        self._nonce = 0

    def _mix_key_and_hash(self, material: bytes) -> None:
        self._chaining_key, hashed, self._key = _hkdf(self._chaining_key, material)
        self._nonce = 0
        self._mix_hash(hashed)

    def _mix_public(self, public: bytes) -> None:
        self._mix_hash(public)
        self._mix_key(public)  # in patterns with a pre-shared key, `e` also makes the key unique

    def _encrypt_and_hash(self, payload: bytes) -> bytes:
        ciphertext = AESGCM(self._key).encrypt(nonce(self._nonce), payload, self.hash)
        self._nonce += 1
        self._mix_hash(ciphertext)
        return ciphertext

    def _decrypt_and_hash(self, ciphertext: bytes) -> bytes:
        try:
            payload = AESGCM(self._key).decrypt(nonce(self._nonce), ciphertext, self.hash)
        except InvalidTag as error:
            raise NoiseError("holds another secret, or belongs to another run or endpoint") from error
        self._nonce += 1
        self._mix_hash(ciphertext)
        return payload


def nonce(number: int) -> bytes:
    """Return AES-GCM's nonce for a message number: 32 zero bits, then the number in big-endian order."""
    return number.to_bytes(NONCE_BYTES, "big")


def rekey(key: bytes) -> bytes:
    """Return the key that replaces `key` after a limited amount of data; `key` cannot be computed from it."""
    return AESGCM(key).encrypt(nonce(MAX_NONCE), bytes(KEY_BYTES), b"")[:KEY_BYTES]


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes, bytes]:
    """Return three outputs. Where the specification takes two, they are the first two."""
    temporary = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(temporary, b"\x01", "sha256")
    second = hmac.digest(temporary, first + b"\x02", "sha256")
    return first, second, hmac.digest(temporary, second + b"\x03", "sha256")
