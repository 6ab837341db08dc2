"""What a worker's process shows of itself."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from srl.base.meter import Counter, Meter
from srl.workers.process import show_compilation

meter = Meter.unshared()
assert not show_compilation(meter), "Numba is not imported yet"
import numba
from numba.extending import overload

assert show_compilation(meter)
found = [meter.get(Counter.COMPILING)]

def inner():
    return 1

@overload(inner)
def compiled_inner():
    found.append(meter.get(Counter.COMPILING))
    return lambda: 1

@numba.njit
def middle():
    return inner()

@numba.njit
def outer():
    return middle()

outer()
found.append(meter.get(Counter.COMPILING))
assert found[0] == found[-1] == 0 and found[1:-1] and all(found[1:-1]), found
"""


def test_a_worker_shows_that_numba_compiles_functions() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
