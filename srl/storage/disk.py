"""What to tell the user when the disk says no."""

from __future__ import annotations

import errno

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
