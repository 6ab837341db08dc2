"""Memory that processes of one host can share, and that vanishes with the last of them: no name, no file."""

from __future__ import annotations

import mmap
import os

import numpy as np

from srl.base.tree import Array


class Memory:
    """A block of zeroed bytes in a memfd. Pages are taken when first touched, so a generous size costs nothing."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self._map = mmap.mmap(fd, nbytes)
        self.bytes: Array = np.frombuffer(self._map, np.uint8)

    @classmethod
    def create(cls, name: str, nbytes: int) -> Memory:
        """New memory; `name` shows in /proc only. Raises MemoryError where the host has no room for it."""
        fd = os.memfd_create(f"srl-{name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, nbytes)
            return cls(fd, nbytes)
        except OSError as error:
            os.close(fd)
            raise MemoryError(f"no room for {nbytes / 2**20:.0f} MB of shared memory ({name}): {error}") from error

    @classmethod
    def from_fd(cls, fd: int) -> Memory:
        """Map memory received from another process; takes the descriptor over."""
        return cls(fd, os.fstat(fd).st_size)

    def remap(self) -> None:
        """See what another process added to it since; earlier views stay valid."""
        self.nbytes = os.fstat(self.fd).st_size
        self._map = mmap.mmap(self.fd, self.nbytes)
        self.bytes = np.frombuffer(self._map, np.uint8)

    def array(self, offset: int, shape: tuple[int, ...], dtype: str) -> Array:
        """A view; it keeps the mapping alive, also after `close`."""
        count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        return self.bytes[offset : offset + count].view(dtype).reshape(shape)

    def close(self) -> None:
        """Give the descriptor back; the mapping goes when the last view does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
