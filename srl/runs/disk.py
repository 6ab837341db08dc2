"""Files that are whole or not there, and what to tell the user when the disk says no."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space or choose another place with --root",
    errno.EDQUOT: "your disk quota is used up; free some space or choose another place with --root",
    errno.EFBIG: "the file would pass the allowed size; raise `ulimit -f` or choose another place with --root",
    errno.EACCES: "you may not write there; change its permissions or choose another place with --root",
    errno.EPERM: "you may not write there; change its permissions or choose another place with --root",
    errno.EROFS: "the file system is read-only; choose another place with --root",
    errno.ENOTDIR: "a part of this path is a file; choose another place with --root",
    errno.EEXIST: "a file of that name stands there; choose another place with --root",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter --name or --root",
    errno.EMFILE: "too many open files; raise `ulimit -n`",
    errno.ENOENT: "it does not exist",
}


def explain(error: OSError) -> str:
    """What went wrong and what to do about it, in words."""
    return REMEDIES.get(error.errno or 0, error.strerror or str(error))


def write_synced(path: Path, content: bytes) -> None:
    """A new file whose content has reached the disk when this returns."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, content: bytes, sync: bool = False) -> None:
    """Replace the file at once: readers see the former content or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        if sync:
            write_synced(temporary, content)
        else:
            temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):  # what brought us here is the error to report
            temporary.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make the names inside a directory (new, renamed, removed) survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
