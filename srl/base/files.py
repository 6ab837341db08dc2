"""Atomic and durable writes of files, and readable explanations of disk errors."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space or choose another directory with --root",
    errno.EDQUOT: "your disk quota is used up; free some space or choose another directory with --root",
    errno.EFBIG: "the file would exceed the allowed size; raise `ulimit -f` or choose another directory with --root",
    errno.EACCES: "permission denied; change its permissions or choose another directory with --root",
    errno.EPERM: "permission denied; change its permissions or choose another directory with --root",
    errno.EROFS: "the file system is read-only; choose another directory with --root",
    errno.ENOTDIR: "a part of this path is a file; choose another directory with --root",
    errno.EEXIST: "a file of that name exists; choose another directory with --root",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter --name or --root",
    errno.EMFILE: "too many open files; raise `ulimit -n`",
    errno.ENOENT: "it does not exist",
}


def explain_os_error(error: OSError) -> str:
    """Describe a disk error and how to fix it."""
    return REMEDIES.get(error.errno or 0, error.strerror or str(error))


def write_synced(path: Path, content: bytes) -> None:
    """Create a file and flush its content to disk."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path with the same suffix, whose file atomically replaces `path` when the block ends. If the
    block raises, `path` is unchanged.
    """
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        temporary.unlink(missing_ok=True)
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes, sync: bool = False) -> None:
    """Replace the file atomically: readers see either the old content or the new, never a partial file."""
    with replacing(path) as temporary:
        if sync:
            write_synced(temporary, content)
        else:
            temporary.write_bytes(content)


def sync_directory(path: Path) -> None:
    """Flush a directory to disk, so that creating, renaming or removing files in it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
