"""The threads of the library that computes products of matrices in compiled code."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module


@cache
def limit_blas_threads() -> None:
    """Let SciPy's BLAS, which computes the products, use one thread. OpenBLAS otherwise divides even the products of a
    minibatch between all cores, and its threads spin: a gradient step of SAC took 4 to 10 times the CPU time. Worker
    processes have a variable for this; this is for runs in the user's own process."""
    library = ctypes.CDLL(str(import_module("scipy.linalg.cython_blas").__file__))
    for name in ("scipy_openblas_set_num_threads", "openblas_set_num_threads"):  # of PyPI, and of distributions
        if hasattr(library, name):
            getattr(library, name)(1)
            return
