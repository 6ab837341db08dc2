"""Runs scripts of the docs in little time: python tests/support/code_blocks.py SCRIPT...

Each runs in its own directory and in a process forked from one that has imported torch already."""

from __future__ import annotations

import functools
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # imported once for all scripts

import srl

STEPS = 1000
LIMITS = {"steps": STEPS, "epochs": 1, "num_minibatches": 4, "seeds": 1, "trials": 1, "episodes": 2, "from_update": 1}


def shortened(function: Any, **always: Any) -> Any:
    """Return the function with smaller numbers than those that the docs show."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        for name in LIMITS.keys() & options.keys():
            options[name] = min(options[name], LIMITS[name])
        return function(*arguments, **{**always, **options})

    return run


def run_script(script: Path) -> int:
    """Run the script in a child process and return its exit code."""
    if (child := os.fork()) != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        os.chdir(script.parent)
        sys.argv = [script.name]
        runpy.run_path(script.name, run_name="__main__")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    srl.train = shortened(srl.train, steps=STEPS, scheduler="inline", sinks=(), verbose=False)
    srl.sweep = shortened(srl.sweep, steps=STEPS, scheduler="inline", sinks=())
    srl.evaluate = shortened(srl.evaluate)
    srl.Run.replay = shortened(srl.Run.replay)  # type: ignore[method-assign]
    failed = [name for name in sys.argv[1:] if run_script(Path(name)) != 0]
    print("failed:", *failed)
    sys.exit(1 if failed else 0)
