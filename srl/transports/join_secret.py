"""The join secret, which an agent must hold to join a run. It is stored in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

SECRET_BYTES = 32
DEFAULT = "~/.srl/secret"


def read_secret(path: str | Path) -> bytes:
    """Read a join secret. Raises PermissionError if there is none, others can read it, or it is malformed."""
    path = Path(path).expanduser()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise PermissionError(
            f"no join secret at {path} ({error.strerror}); copy the file from the host where `srl train` runs, or give "
            "the path of another one with --secret-file"
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(
                f"{path} must be readable only by its owner (user {os.getuid()}, mode 600); found user "
                f"{status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}"
            )
        content = file.read(SECRET_BYTES + 1)
    if len(content) != SECRET_BYTES:
        raise PermissionError(
            f"{path} is not a join secret: expected {SECRET_BYTES} bytes, found "
            f"{len(content) if len(content) < SECRET_BYTES else 'more'}; remove the file to get a new secret"
        )
    return content


def find_or_make_secret(path: str | Path) -> bytes:
    """Read the join secret from a file, which is created if it does not exist."""
    path = Path(path).expanduser()
    if not os.path.lexists(path):
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_secret(path)
        except FileExistsError:
            pass  # another process was faster
        except OSError as error:
            raise PermissionError(f"cannot write a join secret to {path}: {error.strerror}") from error
    return read_secret(path)


def _make_secret(path: Path) -> None:
    """Create the file atomically: another run, even on another machine, must not read part of it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
