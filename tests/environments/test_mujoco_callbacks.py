"""MuJoCo without its clock: the physics does not change, and a clock that was set before is kept."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("mujoco")

SCRIPT = """
import ctypes, sys
import mujoco
from srl.environments.mujoco.callbacks import stop_clock

BALL = "<body pos='0 0 1'><freejoint/><geom size='.1'/></body>"
XML = f"<mujoco><worldbody>{BALL}<geom type='plane' size='2 2 1'/></worldbody></mujoco>"

def fall():
    model = mujoco.MjModel.from_xml_string(XML)
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 400)
    return data.qpos.tolist()

before = fall()
calls = []
if sys.argv[1] == "theirs":
    clock = ctypes.CFUNCTYPE(ctypes.c_double)(lambda: calls.append(1) or 0.0)
    mujoco.set_mjcb_time(clock)
stop_clock()
assert fall() == before
assert bool(calls) == (sys.argv[1] == "theirs")
assert mujoco.get_mjcb_time() is not None
"""


@pytest.mark.parametrize("clock_of", ["ours", "theirs"])
def test_stopping_the_clock_does_not_change_the_physics(clock_of: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, clock_of], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
