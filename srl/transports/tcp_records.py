"""Records of a TCP connection: frames with a length and an authentication tag, in a fixed order.

A frame of up to `SHORT_BYTES` is one record: its length, the frame, and a tag over both. For a longer frame, the length
is a record of its own (length, tag), and the frame and its tag follow. A length that is not authenticated can therefore
make the receiver wait for `SHORT_BYTES` at most.

Tags are AES-GCM with the keys of the Noise handshake and Noise's nonces: record number n has nonce n, so a dropped,
duplicated or moved record is detected. Both ends replace a key by Noise's `REKEY` after the same amount of data.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import AEADDecryptionContext, AEADEncryptionContext, Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from srl.base.wire import Buffer, DecodeError
from srl.transports.handshake import SessionKeys
from srl.transports.noise import NONCE_BYTES, TAG_BYTES, rekey

LENGTH = struct.Struct("<Q")
LENGTH_RECORD_BYTES = LENGTH.size + TAG_BYTES
SHORT_BYTES = 2**18
"""Size above which a frame's length is authenticated before the frame. Encrypting such a frame piece by piece is also
cheaper than copying it into one contiguous buffer."""
BLOCK_BYTES = 16  # AES block size, by which the output buffer must be larger than the input
PIECE_BYTES = 2**30  # limit of one call of the cipher
MAX_SCRATCH_BYTES = 2**23
REKEY_BYTES = 2**34
RECORD_COST = 2**12
"""A key is replaced after `REKEY_BYTES` of frames, to which each record adds `RECORD_COST`: at most 2**22 records.
AES-GCM allows 2**32 records and 2**36 bytes."""
ALTERED = "the record was altered, replayed, moved or not sent by this peer"


class AuthenticatedRecords:
    """Records in one direction of a connection: cleartext frames, authenticated as AES-GCM's associated data."""

    def __init__(self, key: bytes) -> None:
        self._use(key)
        self._sequence = 1  # the handshake used nonce 0
        self._cost = 0

    def _use(self, key: bytes) -> None:
        self._key = key
        self._one_shot = AESGCM(key)

    def _next_nonce(self, num_bytes: int) -> bytes:
        """Return the nonce of a record with a frame of `num_bytes`. It may replace the key, so call it first."""
        self._cost += num_bytes + RECORD_COST
        if self._cost > REKEY_BYTES:
            self._use(rekey(self._key))
            self._cost = num_bytes + RECORD_COST
        number = self._sequence
        self._sequence = number + 1
        return number.to_bytes(NONCE_BYTES, "big")

    def encode(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Return a frame's records as buffers, which are valid until the next call."""
        size = sum(map(len, buffers))
        length = LENGTH.pack(size)
        if size > SHORT_BYTES:
            number = self._next_nonce(0)
            return [length, self._one_shot.encrypt(number, b"", length), *self._encode_long(buffers, size)]
        record = b"".join((length, *buffers))
        number = self._next_nonce(size)
        return [record, self._one_shot.encrypt(number, b"", record)]

    def _encode_long(self, buffers: Sequence[Buffer], size: int) -> list[Buffer]:
        encryptor = self._encryptor(size)
        for buffer in buffers:
            for piece in _pieces(buffer):
                encryptor.authenticate_additional_data(piece)
        encryptor.finalize()
        return [*buffers, encryptor.tag]

    def check_length(self, record: memoryview) -> None:
        """Check the record that announces a long frame. Raises DecodeError if its tag is wrong."""
        self._check(self._next_nonce(0), record[: LENGTH.size], record[LENGTH.size :])

    def decode(self, record: memoryview) -> memoryview:
        """Return the frame of a complete short record, in place. Raises DecodeError if the tag is wrong."""
        number = self._next_nonce(len(record) - LENGTH_RECORD_BYTES)
        try:
            self._one_shot.decrypt(number, record[-TAG_BYTES:], record[:-TAG_BYTES])
        except InvalidTag as error:
            raise DecodeError(ALTERED) from error
        return record[LENGTH.size : -TAG_BYTES]

    def decode_long(self, record: memoryview) -> memoryview:
        """Return a long frame, in place, from a record that consists of the frame and its tag."""
        frame = record[:-TAG_BYTES]
        if len(frame) <= PIECE_BYTES:
            self._check(self._next_nonce(len(frame)), frame, record[-TAG_BYTES:])
            return frame
        decryptor = self._decryptor(record)
        for piece in _pieces(frame):
            decryptor.authenticate_additional_data(piece)
        _finalize(decryptor)
        return frame

    def _check(self, number: bytes, data: memoryview, tag: memoryview) -> None:
        try:
            self._one_shot.decrypt(number, tag, data)
        except InvalidTag as error:
            raise DecodeError(ALTERED) from error

    def _encryptor(self, size: int) -> AEADEncryptionContext:
        number = self._next_nonce(size)
        return Cipher(AES(self._key), GCM(number)).encryptor()

    def _decryptor(self, record: memoryview) -> AEADDecryptionContext:
        number = self._next_nonce(len(record) - TAG_BYTES)
        return Cipher(AES(self._key), GCM(number, bytes(record[-TAG_BYTES:]))).decryptor()


class EncryptedRecords(AuthenticatedRecords):
    """Records whose frame is encrypted; only the length is sent in the clear."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._scratch: memoryview | None = None  # new pages for each large record would cost more than the cipher

    def encode(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        size = sum(map(len, buffers))
        if size > SHORT_BYTES:
            return super().encode(buffers)
        length = LENGTH.pack(size)
        frame = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        ciphertext = self._buffer(SHORT_BYTES + TAG_BYTES)[: size + TAG_BYTES]
        number = self._next_nonce(size)
        self._one_shot.encrypt_into(number, frame, length, ciphertext)
        return [length, ciphertext]

    def _encode_long(self, buffers: Sequence[Buffer], size: int) -> list[Buffer]:
        encryptor = self._encryptor(size)
        ciphertext = self._buffer(size + BLOCK_BYTES)
        end = 0
        for buffer in buffers:
            for piece in _pieces(buffer):
                end += encryptor.update_into(piece, ciphertext[end:])
        encryptor.finalize()
        return [ciphertext[:end], encryptor.tag]

    def _buffer(self, size: int) -> memoryview:
        if self._scratch is not None and size <= len(self._scratch):
            return self._scratch
        buffer: memoryview = np.empty(size, np.uint8).data
        if size <= MAX_SCRATCH_BYTES:
            self._scratch = buffer
        return buffer

    def decode(self, record: memoryview) -> memoryview:
        frame = record[LENGTH.size : -TAG_BYTES]
        number = self._next_nonce(len(frame))
        try:
            # In place: nothing else uses the record.
            self._one_shot.decrypt_into(number, record[LENGTH.size :], record[: LENGTH.size], frame)
        except InvalidTag as error:
            raise DecodeError(ALTERED) from error
        return frame

    def decode_long(self, record: memoryview) -> memoryview:
        decryptor = self._decryptor(record)
        end = 0
        for piece in _pieces(record[:-TAG_BYTES]):
            # In place: the tag, which has been copied, is the space that the cipher needs after the frame.
            end += decryptor.update_into(piece, record[end:])
        _finalize(decryptor)
        return record[:-TAG_BYTES]


def _finalize(decryptor: AEADDecryptionContext) -> None:
    try:
        decryptor.finalize()
    except InvalidTag as error:
        raise DecodeError(ALTERED) from error


def _pieces(buffer: Buffer) -> Sequence[Buffer]:
    if len(buffer) <= PIECE_BYTES:
        return (buffer,)
    view = memoryview(buffer)
    return [view[start : start + PIECE_BYTES] for start in range(0, len(view), PIECE_BYTES)]


@dataclass(frozen=True)
class RecordCodecs:
    """Encoder and decoder of a connection's records; each direction has its own key."""

    outgoing: AuthenticatedRecords
    incoming: AuthenticatedRecords

    @classmethod
    def of(cls, keys: SessionKeys) -> RecordCodecs:
        kind = EncryptedRecords if keys.encrypt else AuthenticatedRecords
        return cls(kind(keys.outgoing), kind(keys.incoming))
