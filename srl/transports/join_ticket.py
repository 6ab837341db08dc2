"""Admission to a run: the controller's certificate, and tickets that let hosts find the controller and join.

A ticket is stored in the run's *join file*, which only its owner can read. It names the controller's address and
certificate, and holds a proof: a MAC over the ticket's expiry, made with a key that only the controller has. So the
controller need not remember tickets, and an old copy of the file becomes useless when it expires.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import ssl
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from srl.base.files import replacing

FORMAT = 1
JOIN = "join"  # name of a run's join file
IDENTITY = "controller.pem"
PROOF_BYTES = 32
FINGERPRINT_BYTES = 32
NEVER = 2**62
"""Expiry of a ticket that the controller gives to a host of the run, which may return at any time."""
LIFETIME = 24 * 3600.0  # seconds for which a ticket in a join file is valid
MAX_FILE_BYTES = 1 << 16


@dataclass(frozen=True)
class JoinTicket:
    """Everything that a host needs to join a run."""

    run: str
    address: str  # `host:port` of the controller
    fingerprint: bytes  # SHA-256 of the controller's certificate
    expires: int  # seconds since 1970, by the controller's clock
    proof: bytes = field(repr=False)
    format: int = FORMAT


class Identity:
    """A controller's certificate with its private key, in a file that only its owner can read. The file outlives a
    controller that is killed, so that its successor has the same certificate and accepts the same tickets."""

    def __init__(self, path: Path) -> None:
        """Read the identity. Raises OSError if the file is missing, readable by others, or malformed."""
        self.path = path
        try:
            pem = _read_private(path).decode("ascii")
            self.fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN CERT") :])).digest()
        except ValueError as error:
            raise PermissionError(f"{path} is not a certificate with its key: {error}; remove it") from error
        self._ticket_key = hmac.digest(hashlib.sha256(pem.encode()).digest(), b"srl join tickets", "sha256")

    @classmethod
    def create(cls, path: Path) -> Identity:
        """Make a new certificate and key, and write them to `path`."""
        _write_private(path, _new_certificate())
        return cls(path)

    def proof(self, expires: int) -> bytes:
        """Return the proof of a ticket."""
        return hmac.digest(self._ticket_key, expires.to_bytes(8, "big"), "sha256")

    def ticket(self, run: str, address: str, lifetime: float = LIFETIME) -> JoinTicket:
        expires = int(time.time() + lifetime)
        return JoinTicket(run, address, self.fingerprint, expires, self.proof(expires))


def _new_certificate() -> bytes:
    from datetime import datetime

    # Imported here, because it takes a tenth of a second and only controllers of runs over hosts need it.
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "controller of a run")])
    # Hosts compare the whole certificate, so its dates do not matter and clocks may differ.
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2000, 1, 1))
        .not_valid_after(datetime(9999, 12, 31))
        .sign(key, None)
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, serialization.NoEncryption()) + certificate.public_bytes(pem)


class JoinFile:
    """A run's join file. The controller renews it, so that it is always valid for at least half of LIFETIME."""

    def __init__(self, path: Path, identity: Identity, run: str, address: str) -> None:
        self.path = path
        self._identity = identity
        self._run = run
        self._address = address
        self._renewal = 0.0
        if os.path.lexists(path):
            try:
                read_ticket(path)  # of an earlier controller
            except OSError as error:
                raise FileExistsError(
                    f"{path} exists and is not a join file of yours ({error}); remove it, or choose another --join-file"
                ) from error
        self.proof_of_hosts = identity.proof(NEVER)  # given to hosts of the run, so that they can always return
        self.renew()

    def ticket(self) -> JoinTicket:
        """Return a new ticket."""
        return self._identity.ticket(self._run, self._address)

    def renew(self) -> None:
        """Write a new ticket to the file, if half of the lifetime of the last one is over."""
        now = time.time()
        if abs(self._renewal - now) > LIFETIME / 2:  # also after a large step of the clock in either direction
            self._renewal = now
            _write_private(self.path, msgspec.json.encode(self.ticket()))

    def remove(self) -> None:
        """Remove the file and the identity at the end of the run, unless a newer controller has replaced them."""
        with contextlib.suppress(OSError):
            if read_ticket(self.path).fingerprint == self._identity.fingerprint:
                self.path.unlink()
        with contextlib.suppress(OSError):
            if Identity(self._identity.path).fingerprint == self._identity.fingerprint:
                self._identity.path.unlink()


def read_ticket(path: str | Path) -> JoinTicket:
    """Read a join file. Raises FileNotFoundError if there is none (yet), and PermissionError if others can read it or
    it is malformed."""
    path = Path(path).expanduser()
    content = _read_private(path)
    try:
        ticket = msgspec.json.decode(content, type=JoinTicket)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PermissionError(f"{path} is not the join file of a run: {error}") from error
    sizes = len(ticket.fingerprint), len(ticket.proof)
    if ticket.format != FORMAT or sizes != (FINGERPRINT_BYTES, PROOF_BYTES) or not 0 <= ticket.expires <= NEVER:
        raise PermissionError(f"{path} is the join file of another version of srl; install the same one on all hosts")
    return ticket


def _read_private(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PermissionError(f"cannot read {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(
                f"{path} must be readable only by its owner (user {os.getuid()}, mode 600); found user "
                f"{status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}"
            )
        return file.read(MAX_FILE_BYTES)


def _write_private(path: Path, content: bytes) -> None:
    """Write a file atomically that never exists with a mode other than 600."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with replacing(path) as temporary, os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
        file.write(content)
