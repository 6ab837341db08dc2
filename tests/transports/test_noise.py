"""The handshake and the records against test vectors: published ones for the Noise pattern, and our own."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from srl.transports import tcp_records
from srl.transports.handshake import Credentials
from srl.transports.noise import PROTOCOL, NoiseError, NoiseHandshake, nonce, rekey
from srl.transports.tcp_records import SHORT_BYTES, AuthenticatedRecords, EncryptedRecords

# The vector of Noise_NNpsk0_25519_AESGCM_SHA256 in cacophony.txt, which the implementations cacophony (Haskell) and
# snow (Rust) share. Its "handshake_hash" is the one after the first message.
PROLOGUE = b"John Galt"
PSK = b"This is my Austrian perspective!"
INITIATOR = "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"
RESPONDER = "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"
HASH = "29d92c13649b5d28b41afd8dc5d6ce7f46df2348e4061c09f1c354b593e13add"
MESSAGES = [
    (
        b"Ludwig von Mises",
        "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
        "7c37a89fc17813788d30df2d59501d6066f5f8aecc3406bbd9829f2d24a531b1",
    ),
    (
        b"Murray Rothbard",
        "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
        "2f29d79368ef9de4e1ae7a362fb05bf0ad668e026bf5714554497b3a720461",
    ),
]
TRANSPORT = [  # alternating, the initiator first
    (b"F. A. Hayek", "7c01e898a6201f36aecee532e29cd0b7f8ffa29d3366ad0dce39a6"),
    (b"Carl Menger", "a9ff535aace3db6a1da1a7fb00fe2de2622bb373abad9fb42c00e0"),
    (b"Jean-Baptiste Say", "6cfc49a3e65472edc2d0152abe5ce950170a8a47c959f30bd48b5f0aacf29adbfd"),
    (
        "Eugen B\xf6hm von Bawerk".encode("latin-1"),
        "9bc86e6d974ed21ba04604a94aa68de21677eb409ead070c0cd569b069ee19ba142aa4c1a9",
    ),
]


def private(key: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(key))


def test_the_handshake_matches_the_published_vector() -> None:
    assert PROTOCOL == b"Noise_NNpsk0_25519_AESGCM_SHA256"
    initiator = NoiseHandshake(True, PROLOGUE, PSK, private(INITIATOR))
    responder = NoiseHandshake(False, PROLOGUE, PSK, private(RESPONDER))
    for (payload, expected), writer, reader in zip(
        MESSAGES, (initiator, responder), (responder, initiator), strict=True
    ):
        message = writer.write_message(payload)
        assert message.hex() == expected
        assert reader.read_message(message) == payload
        assert initiator.hash == responder.hash
        if writer is initiator:
            assert initiator.hash.hex() == HASH
    assert initiator.split() == responder.split()
    for number, (payload, expected) in enumerate(TRANSPORT):
        key = initiator.split()[number % 2]
        assert AESGCM(key).encrypt(nonce(number // 2), payload, b"").hex() == expected


@pytest.mark.parametrize(
    ("prologue", "psk", "changed"),
    [(b"John", PSK, -1), (PROLOGUE, bytes(32), -1), (PROLOGUE, PSK, 0), (PROLOGUE, PSK, 40)],
)
def test_a_first_message_of_another_prologue_or_secret_is_refused(prologue: bytes, psk: bytes, changed: int) -> None:
    message = bytearray(NoiseHandshake(True, prologue, psk).write_message())
    if changed >= 0:
        message[changed] ^= 1
    with pytest.raises(NoiseError, match="holds another secret, or belongs to another run or endpoint"):
        NoiseHandshake(False, PROLOGUE, PSK).read_message(bytes(message))


# Our own vectors: prologue, session keys and records of a connection to the endpoint "trainer/0.1" of the run "walker".
SECRET = bytes(range(32))
VECTORS = {
    False: {
        "hello": (
            "53524c480300ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79447647"
            "de8186891646bf879a9246f12b8a"
        ),
        "answer": ("95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843fef4b7b08e12e9b3f15093ec7807ef84"),
        "confirmation": "eb3e8dcc3705f14d28354ab4d05759ef",
        "to_client": "f069f184b637f4adb625b9da5d57412a6abafad9cfc1314d767fc1e74ce02fd9",
        "short": ("18000000000000007369787465656e2062797465732e2e2e616e64206d6f72658854a2923a5754a9a6e77fc672220458"),
        "long": "32f108740235d0fd96d63c6de2021f93dfe0cb61731c13ec5a8f8886ea58f7c3",
        "rekeyed": "10000000000000007369787465656e2062797465732e2e2ef385c4c36341b37f96d9bae2a0fbd409",
    },
    True: {
        "hello": (
            "53524c480301ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944707c"
            "29742c2d99d410ce3daa38a41031"
        ),
        "answer": ("95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843ffe35cac4a25d8bedfa095bb64951bf9"),
        "confirmation": "eb3e8dcc3705f14d28354ab4d05759ef",
        "to_client": "f069f184b637f4adb625b9da5d57412a6abafad9cfc1314d767fc1e74ce02fd9",
        "short": ("1800000000000000742f1d8c542264ea8ce52bec33d585f87f071d538332445a40147b080e0cfb6e53e09e410d0e0a5e"),
        "long": "f65f5aa6f8e45e2cbdacdfcc9a1ec2b2c6b9f64f3fd6775a275435f33a899f64",
        "rekeyed": "1000000000000000b245aa80e7d53b0acef9360653045ba86a8822917eb75de22275cbfd668aff0c",
    },
}


def session(encrypt: bool) -> tuple[str, str, bytes, bytes]:
    """Return both handshake messages and the keys, with the ephemeral keys of the published vector."""
    credentials = Credentials(SECRET, "walker", encrypt)
    client, server = credentials.noise(True, "trainer/0.1"), credentials.noise(False, "trainer/0.1")
    client._ephemeral, server._ephemeral = private(INITIATOR), private(RESPONDER)
    hello = client.write_message()
    server.read_message(hello)
    answer = server.write_message()
    client.read_message(answer)
    return (credentials.opening + hello).hex(), answer.hex(), *client.split()


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_connection_matches_our_vectors(encrypt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hello, answer, to_server, to_client = session(encrypt)
    kind = EncryptedRecords if encrypt else AuthenticatedRecords
    records = kind(to_server)
    found = {
        "hello": hello,
        "answer": answer,
        "confirmation": AESGCM(to_server).encrypt(nonce(0), b"", b"").hex(),
        "to_client": to_client.hex(),
        "short": b"".join(records.encode([b"sixteen bytes...", b"and more"])).hex(),
        "long": hashlib.sha256(b"".join(records.encode([bytes(SHORT_BYTES + 1)]))).hexdigest(),
    }
    monkeypatch.setattr(tcp_records, "REKEY_BYTES", 0)
    found["rekeyed"] = b"".join(records.encode([b"sixteen bytes..."])).hex()
    assert rekey(to_server) == records._key
    assert found == VECTORS[encrypt]
