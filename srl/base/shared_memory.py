"""Anonymous memory shared by processes on a host, freed when the last of them ends."""

from __future__ import annotations

import math
import mmap
import os

import numpy as np

from srl.base.tree import Array


class Memory:
    """A block of zeroed bytes in a memfd. Pages are allocated on first write, so a generous size costs nothing."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        self._map = mmap.mmap(fd, nbytes)
        self.bytes: Array = np.frombuffer(self._map, np.uint8)

    @classmethod
    def create(cls, name: str, nbytes: int) -> Memory:
        """Allocate memory; `name` appears only in /proc. Raises MemoryError if the host has too little."""
        fd = os.memfd_create(f"srl-{name}", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, nbytes)
            return cls(fd, nbytes)
        except OSError as error:
            os.close(fd)
            raise MemoryError(f"cannot allocate {nbytes / 2**20:.0f} MB of shared memory ({name}): {error}") from error

    @classmethod
    def from_fd(cls, fd: int) -> Memory:
        """Map memory received from another process. The new object owns the descriptor."""
        return cls(fd, os.fstat(fd).st_size)

    def remap(self) -> None:
        """Map the memory again after another process has enlarged it; earlier views stay valid."""
        self.nbytes = os.fstat(self.fd).st_size
        self._map = mmap.mmap(self.fd, self.nbytes)
        self.bytes = np.frombuffer(self._map, np.uint8)

    def array(self, offset: int, shape: tuple[int, ...], dtype: str) -> Array:
        """Return an array view, which keeps the mapping alive even after `close`."""
        count = math.prod(shape) * np.dtype(dtype).itemsize
        return self.bytes[offset : offset + count].view(dtype).reshape(shape)

    def close(self) -> None:
        """Close the descriptor; the mapping is freed with the last view."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
