"""Records of a TCP connection: frames with a length and an authentication tag, in a fixed order."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from srl.base.wire import Buffer, DecodeError
from srl.transports.handshake import SessionKeys

LENGTH = struct.Struct("<Q")
TAG_BYTES = 16
BLOCK_BYTES = 16  # AES block size, by which the output buffer must be larger than the input
MAX_SCRATCH_BYTES = 2**23
STREAM_BYTES = 2**18  # size above which encrypting piece by piece is cheaper than copying into one contiguous buffer


class AuthenticatedRecords:
    """Records in one direction of a connection: cleartext frames with a GMAC tag.

    The tag is AES-GCM of an empty message, with length and frame as associated data. The nonce is the record's sequence
    number, so a dropped, duplicated or moved record is detected.
    """

    def __init__(self, key: bytes) -> None:
        self._one_shot = AESGCM(key)
        self._algorithm = AES(key)
        self._sequence = 0

    def encode(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Return the record as buffers: length, frame, tag. They are valid until the next call."""
        size = sum(map(len, buffers))
        length = LENGTH.pack(size)
        if size < STREAM_BYTES:
            record = b"".join((length, *buffers))
            return [record, self._one_shot.encrypt(self._next_nonce(), b"", record)]
        encryptor = Cipher(self._algorithm, GCM(self._next_nonce())).encryptor()
        for buffer in (length, *buffers):
            encryptor.authenticate_additional_data(buffer)
        encryptor.finalize()
        return [length, *buffers, encryptor.tag]

    def decode(self, record: memoryview) -> memoryview:
        """Return the frame of a complete record, in place where possible. Raises DecodeError if the tag is wrong."""
        try:
            self._one_shot.decrypt(self._next_nonce(), record[-TAG_BYTES:], record[:-TAG_BYTES])
        except InvalidTag as error:
            raise DecodeError("the record was altered, replayed, moved or not sent by this peer") from error
        return record[LENGTH.size : -TAG_BYTES]

    def _next_nonce(self) -> bytes:
        nonce = self._sequence.to_bytes(12, "big")
        self._sequence += 1
        return nonce


class EncryptedRecords(AuthenticatedRecords):
    """Records whose frame is encrypted; only the length is sent in the clear."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self._scratch: memoryview | None = None  # new pages for each large record would cost more than the cipher

    def encode(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        size = sum(map(len, buffers))
        length = LENGTH.pack(size)
        if size < STREAM_BYTES:
            frame = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            ciphertext = self._buffer(STREAM_BYTES + TAG_BYTES)[: size + TAG_BYTES]
            self._one_shot.encrypt_into(self._next_nonce(), frame, length, ciphertext)
            return [length, ciphertext]
        encryptor = Cipher(self._algorithm, GCM(self._next_nonce())).encryptor()
        encryptor.authenticate_additional_data(length)
        ciphertext = self._buffer(size + BLOCK_BYTES)
        end = 0
        for buffer in buffers:
            end += encryptor.update_into(buffer, ciphertext[end:])
        encryptor.finalize()
        return [length, ciphertext[:end], encryptor.tag]

    def _buffer(self, size: int) -> memoryview:
        if self._scratch is not None and size <= len(self._scratch):
            return self._scratch
        buffer: memoryview = np.empty(size, np.uint8).data
        if size <= MAX_SCRATCH_BYTES:
            self._scratch = buffer
        return buffer

    def decode(self, record: memoryview) -> memoryview:
        length, ciphertext, tag = record[: LENGTH.size], record[LENGTH.size : -TAG_BYTES], record[-TAG_BYTES:]
        nonce = self._next_nonce()
        try:
            if len(ciphertext) < STREAM_BYTES:
                # A new buffer, because the receiver may write to its arrays.
                frame: memoryview = np.empty(len(ciphertext), np.uint8).data
                self._one_shot.decrypt_into(nonce, record[LENGTH.size :], length, frame)
                return frame
            decryptor = Cipher(self._algorithm, GCM(nonce, bytes(tag))).decryptor()
            decryptor.authenticate_additional_data(length)
            # In place: nothing else uses the record, and its tag is the space that the cipher needs after the frame.
            decryptor.update_into(ciphertext, record[LENGTH.size :])
            decryptor.finalize()
        except InvalidTag as error:
            raise DecodeError("the record was altered, replayed, moved or not sent by this peer") from error
        return ciphertext


@dataclass(frozen=True)
class RecordCodecs:
    """Encoder and decoder of a connection's records; each direction has its own key."""

    outgoing: AuthenticatedRecords
    incoming: AuthenticatedRecords

    @classmethod
    def of(cls, keys: SessionKeys) -> RecordCodecs:
        kind = EncryptedRecords if keys.encrypt else AuthenticatedRecords
        return cls(kind(keys.outgoing), kind(keys.incoming))
