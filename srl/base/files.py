"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def write_synced(path: Path, content: bytes) -> None:
    """A new file whose content has reached the disk when this returns."""
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Where to write a file, of the same ending, that takes the place of `path` at once when the block ends. If it ends
    with an error, what stood there stays."""
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        temporary.unlink(missing_ok=True)
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # what brought us here is the error to report
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes, sync: bool = False) -> None:
    """Replace the file at once: readers see the former content or the new one, never a part."""
    with replacing(path) as temporary:
        if sync:
            write_synced(temporary, content)
        else:
            temporary.write_bytes(content)


def sync_directory(path: Path) -> None:
    """Make the names inside a directory (new, renamed, removed) survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
