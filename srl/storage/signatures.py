"""Signatures of a run's files, made with the user's own key.

A run signs its config.json, its group.json and the manifest of each checkpoint, which covers the checkpoint's other
files by their hashes. `FILE.sig` contains the directory in which the file was written, the public key, and an Ed25519
signature of both the directory and the content. A file that the user's own key has signed in the directory where it is
now comes from a run that this user started, so the code that it names may be loaded. The private key,
`~/.srl/signing.key`, is readable only by its owner; `~/.srl/signing.pub` is for others who want to verify runs.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from srl.base.files import read_regular, write_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FOLDER = Path("~/.srl")
PRIVATE, PUBLIC = "signing.key", "signing.pub"
KEY_BYTES = 32
MAX_BYTES = 1 << 16


class _Signature(msgspec.Struct, forbid_unknown_fields=True):
    directory: str
    key: str  # public key, in hexadecimal digits like the signature
    signature: str


@dataclass(frozen=True)
class Signed:
    """A valid signature: who made it, and where the file was written."""

    key: str
    directory: str


def sign(file: Path, content: bytes, directory: Path | None = None, own: bool = True) -> None:
    """Sign a file's content with the user's key, which is created if it does not exist. If the content is not the
    user's `own`, only remove the signature of the previous content.

    `directory` is the one that the file will be moved to, by default its own. Without a key (the home directory may be
    read-only), the file stays unsigned: the run continues, and commands treat its files as those of someone else.
    """
    with suppress(OSError, ValueError):
        if not own:
            _beside(file).unlink(missing_ok=True)
            return
        private = _private_key(create=True)
        where = os.path.realpath(directory or file.parent)
        signed = private.sign(_statement(where, file.name, content)).hex()
        record = _Signature(where, private.public_key().public_bytes_raw().hex(), signed)
        write_whole(_beside(file), msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def signature_of(file: Path, content: bytes) -> Signed | None:
    """Return the signature of a file with this content. Returns None if there is none, or if it is not valid."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        record = msgspec.json.decode(read_regular(_beside(file), MAX_BYTES), type=_Signature)
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(record.key))
        public.verify(bytes.fromhex(record.signature), _statement(record.directory, file.name, content))
    except (OSError, ValueError, InvalidSignature, RecursionError):
        return None
    return Signed(record.key, record.directory)


def has_signature(file: Path) -> bool:
    """Return whether a file was signed, no matter whether the signature is valid."""
    return os.path.lexists(_beside(file))


def is_own(file: Path, content: bytes) -> bool:
    """Return whether this user's key signed the file in the directory where it is."""
    if not _beside(file).is_file():
        return False
    signed = signature_of(file, content)
    return signed is not None and signed.key == own_key() and signed.directory == os.path.realpath(file.parent)


def own_key() -> str:
    """Return the public key of this user; empty if there is none."""
    try:
        return str(_private_key(create=False).public_key().public_bytes_raw().hex())
    except (OSError, ValueError):
        return ""


def read_key(file: Path) -> str:
    """Return a public key from a file like ~/.srl/signing.pub."""
    text = read_regular(file, MAX_BYTES).decode(errors="replace").strip()
    if len(text) != 2 * KEY_BYTES or not all(digit in "0123456789abcdef" for digit in text):
        raise ValueError(
            f"{file} is not a public key: expected {2 * KEY_BYTES} hexadecimal digits, as in {_own(PUBLIC)}"
        )
    return text


def _statement(directory: str, name: str, content: bytes) -> bytes:
    return b"\0".join((b"srl-signature-1", os.fsencode(directory), name.encode(), content))


def _beside(file: Path) -> Path:
    return file.with_name(f"{file.name}.sig")


def _own(name: str) -> Path:
    return FOLDER.expanduser() / name


def _private_key(create: bool) -> Ed25519PrivateKey:
    """Return the user's key. Raises OSError or ValueError if there is none, others can read it, or it is malformed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = _own(PRIVATE)
    if create and not os.path.lexists(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was faster
            _make(path, secrets.token_bytes(KEY_BYTES))
            public = Ed25519PrivateKey.from_private_bytes(_read_private(path)).public_key()
            write_whole(_own(PUBLIC), public.public_bytes_raw().hex().encode() + b"\n")
    return Ed25519PrivateKey.from_private_bytes(_read_private(path))


def _read_private(path: Path) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{path} must be readable only by its owner (mode 600)")
        return file.read(KEY_BYTES + 1)


def _make(path: Path, content: bytes) -> None:
    """Create the file atomically: another process must not read part of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
