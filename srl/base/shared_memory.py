"""Memory without a name, shared by processes on a host and freed when the last of them ends."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
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


WINDOW_BYTES = 1 << 38
"""Room for each of the workers that share a kept file. It is sparse: what is not written takes no memory."""
HEADER_BYTES = 1 << 16
HUGE_PAGE = 2 << 20
_MADV_COLLAPSE, _MAP_FIXED, _MAP_NORESERVE = 25, 0x10, 0x4000  # of Linux, not in Python 3.11
_UNUSED, _INCOMPLETE = 0, 1  # states of a header; others are the number of bytes of the layout
_STATE, _END, _IDENTITY, _WORDS = 0, 1, 2, 3  # places in a header


class KeptFile:
    """A sparse file without a name, in memory or on a disk. A supervisor holds it, so that its content outlives the
    workers, each of which uses a window of its own."""

    def __init__(self, fd: int, on_disk: bool) -> None:
        self.fd = fd
        self.on_disk = on_disk

    @classmethod
    def create(cls, name: str, directory: Path | None = None) -> KeptFile:
        """Create an empty file in memory, or on the disk of `directory`. Raises ValueError if that is not possible."""
        if directory is None:
            return cls(os.memfd_create(f"srl-{name}", os.MFD_CLOEXEC), False)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory) as file:
                return cls(os.dup(file.fileno()), True)
        except OSError as error:
            raise ValueError(f"cannot create a file in the directory {directory}: {error}") from error

    def window(self, index: int) -> KeptMemory:
        return KeptMemory(self, index)

    @property
    def num_windows(self) -> int:
        """Number of windows up to the last one that was ever used."""
        return -(-os.fstat(self.fd).st_size // WINDOW_BYTES)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class KeptMemory:
    """Named arrays in a window of a :class:`KeptFile`. A worker makes them with `array`, always in the same order, and
    then calls `seal`: if an earlier worker made the same arrays, they have the content that it left, whenever it was
    killed. Other processes read them with `find`."""

    def __init__(self, file: KeptFile, index: int) -> None:
        self._file = file
        self._offset = index * WINDOW_BYTES
        self._end = HEADER_BYTES
        self._layout: list[tuple[str, str, tuple[int, ...], int]] = []
        self._reserved: list[tuple[int, int]] = [(0, HEADER_BYTES)]
        self._pages: list[tuple[Array, int]] = []  # memory of large arrays, and how much of it is in huge pages

    def array(self, name: str, shape: tuple[int, ...], dtype: str, reserved: int | None = None) -> Array:
        """Return the next array. Its content is undefined until `seal`. `reserved` is the number of bytes to reserve on
        a disk, by default all."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        alignment = HUGE_PAGE if nbytes >= HUGE_PAGE else mmap.PAGESIZE
        begin = -(-self._end // alignment) * alignment
        self._end = begin + -(-max(1, nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        if self._end > WINDOW_BYTES:
            raise ValueError(
                f"kept memory is limited to {WINDOW_BYTES / 2**30:,.0f} GiB per worker; {name!r} is too much"
            )
        reserved = nbytes if reserved is None else min(reserved, nbytes)
        self._layout.append((name, np.dtype(dtype).name, shape, reserved))
        self._reserved.append((begin, reserved))
        mapped = self._map(begin, self._end)
        if reserved >= HUGE_PAGE and not self._file.on_disk:
            self._pages.append((mapped[:reserved], 0))
        return mapped[:nbytes].view(dtype).reshape(shape)

    def use_huge_pages(self, share: float) -> None:
        """Move the first `share`, in [0, 1], of each array to huge pages, once it is written. Reads of random rows are
        then as fast as in memory of the process. The kernel does this on request only, one huge page at a time."""
        for number, (mapped, done) in enumerate(self._pages):
            end = int(share * len(mapped)) // HUGE_PAGE * HUGE_PAGE
            if end > done:
                _advise(mapped[done:end], _MADV_COLLAPSE)  # best effort: old kernels cannot, and memory may be scarce
                self._pages[number] = mapped, end

    def seal(self, label: str) -> bool:
        """Return whether the arrays have kept their content. Otherwise, because this is the first use of the window, or
        the arrays or the `label` are others than before, they are zero."""
        text = msgspec.json.encode([label, self._layout])
        header = self._header()
        if self.layout() == text:
            return True
        self.clear()
        self._reserve()
        self._label(header, text, int.from_bytes(os.urandom(7), "little"))
        return False

    def clear(self) -> None:
        """Free the memory of the window."""
        header = self._header()
        if header[_STATE] == _UNUSED:
            return
        header[_STATE] = _INCOMPLETE  # until everything is zero, also if this process is killed
        end = max(int(header[_END]), HEADER_BYTES)
        if end > HEADER_BYTES:
            mapped = self._map(HEADER_BYTES, end)
            if not _advise(mapped, mmap.MADV_REMOVE):
                mapped[...] = 0  # the file system cannot make holes
        header[_STATE] = _UNUSED

    def free_beyond(self, count: int) -> None:
        """Free all windows of the file but the first `count`, which an earlier, larger group of workers used."""
        for index in range(count, self._file.num_windows):
            self._file.window(index).clear()

    def layout(self) -> bytes | None:
        """Return a description of the arrays and the label, or None if nothing is kept."""
        if os.fstat(self._file.fd).st_size < self._offset + HEADER_BYTES:
            return None
        header = self._header()
        size = int(header[_STATE])
        if size in (_UNUSED, _INCOMPLETE):
            return None
        return header[_WORDS:].tobytes()[:size]

    @property
    def identity(self) -> int:
        """Random number that changes when the content starts again from zero."""
        return int(self._header()[_IDENTITY])

    def find(self) -> dict[str, Array] | None:
        """Return the arrays that another process has sealed, by name; None if there are none."""
        text = self.layout()
        return None if text is None else self._arrays(text)

    def fill(self, layout: bytes, identity: int, write: Callable[[dict[str, Array]], None]) -> None:
        """Set the content before a worker starts: `write` sets arrays, which are zero, of a `layout`. If it raises an
        error, nothing is kept. Raises ValueError if that is no layout."""
        self.clear()
        arrays = self._arrays(layout)
        self._reserve()
        header = self._header()
        header[_STATE], header[_END] = _INCOMPLETE, self._end
        try:
            write(arrays)
        except BaseException:
            self.clear()
            raise
        self._label(header, layout, identity)

    def _arrays(self, layout: bytes) -> dict[str, Array]:
        try:
            _, entries = msgspec.json.decode(layout, type=tuple[str, list[tuple[str, str, tuple[int, ...], int]]])
            other = KeptMemory(self._file, self._offset // WINDOW_BYTES)
            found = {name: other.array(name, shape, dtype, reserved) for name, dtype, shape, reserved in entries}
        except (msgspec.MsgspecError, TypeError, OverflowError) as error:
            raise ValueError(f"not a layout of kept memory: {error}") from error
        self._end, self._reserved = other._end, other._reserved
        return found

    def _label(self, header: Array, text: bytes, identity: int) -> None:
        if len(text) > HEADER_BYTES - 8 * _WORDS:
            raise ValueError(f"the layout of kept memory takes {len(text)} bytes, which is too much")
        header[_END], header[_IDENTITY] = self._end, identity
        header[_WORDS:].view(np.uint8)[: len(text)] = np.frombuffer(text, np.uint8)
        header[_STATE] = len(text)  # last: from now on the content counts

    def _reserve(self) -> None:
        """Reserve space on a disk, because a process that writes to a mapped file on a full disk is killed."""
        if self._file.on_disk:
            try:
                for begin, nbytes in self._reserved:
                    os.posix_fallocate(self._file.fd, self._offset + begin, max(1, nbytes))
            except OSError as error:
                total = sum(nbytes for _, nbytes in self._reserved)
                raise MemoryError(f"cannot reserve {total / 2**30:.1f} GiB on the disk for replay: {error}") from error

    def _header(self) -> Array:
        return self._map(0, HEADER_BYTES).view(np.int64)

    def _map(self, begin: int, end: int) -> Array:
        offset, fd = self._offset + begin, self._file.fd
        if os.fstat(fd).st_size < self._offset + end:
            # Not with truncate: another worker may enlarge the file at the same time.
            os.pwrite(fd, b"\0", self._offset + end - 1)
        return _mapped(fd, offset, end - begin)


def _mapped(fd: int, offset: int, nbytes: int) -> Array:
    """Map a part of a file, at an address at which the kernel can use huge pages. Unlike `mmap.mmap`, the mapping holds
    no descriptor."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    room = np.frombuffer(mmap.mmap(-1, nbytes + HUGE_PAGE, flags=flags), np.uint8)
    shift = (offset - room.ctypes.data) % HUGE_PAGE
    address = room.ctypes.data + shift
    found = _libc().mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _MAP_FIXED, fd, offset)
    if found != address:
        raise OSError(ctypes.get_errno(), f"cannot map {nbytes:,} bytes: {os.strerror(ctypes.get_errno())}")
    return room[shift : shift + nbytes]  # unmapped with `room`, when the last view of it ends


def _advise(mapped: Array, advice: int) -> bool:
    return bool(_libc().madvise(mapped.ctypes.data, len(mapped), advice) == 0)


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc
