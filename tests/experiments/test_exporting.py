"""Exported policies: the same actions as the policy's, in a process that has neither srl nor torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trained import untrained

import srl
from srl.algorithms.ppo import PPOConfig
from srl.cli import main

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

ALONE = """
import json, sys
import numpy, onnxruntime
assert "srl" not in sys.modules and "torch" not in sys.modules
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("srl", "torch"):
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Forbid())
session = onnxruntime.InferenceSession(sys.argv[1])
observations = numpy.load(sys.argv[2])
feeds = {"observation": observations}
names = [output.name for output in session.get_outputs()]
if "next_state" in names:
    (size,) = [entry.shape[1] for entry in session.get_inputs() if entry.name == "state"]
    feeds |= {"state": numpy.zeros((len(observations), size), "float32"), "first": numpy.ones(len(observations), bool)}
    for _ in range(2):  # act, then act again with the memory of that
        outputs = dict(zip(names, session.run(None, feeds)))
        feeds |= {"state": outputs["next_state"], "first": numpy.zeros(len(observations), bool)}
outputs = dict(zip(names, session.run(None, feeds)))
print(json.dumps(outputs["action"].tolist()))
"""


def act_alone(file: Path, observations: Any) -> Any:
    data = file.with_suffix(".npy")
    np.save(data, observations)
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, str(file), str(data)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout))


def test_a_policy_acts_without_srl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = untrained(tmp_path, "CartPole-v1")
    assert main(["export", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "observation -> action, parameters, value" in shown
    assert "the same actions" in shown
    observations = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    wanted = srl.load(run.path).act(observations)
    assert set(wanted.tolist()) == {0, 1}
    assert act_alone(run.path / "policy.onnx", observations).tolist() == wanted.tolist()


@pytest.mark.slow
def test_a_policy_with_a_memory_takes_and_gives_its_state(tmp_path: Path) -> None:
    run = untrained(tmp_path, "Pendulum-v1", ppo=PPOConfig(memory="gru", memory_size=8))
    done = srl.export(run.path, tmp_path / "out" / "memory.onnx")
    assert done.inputs == ("observation", "state", "first")
    assert done.outputs == ("action", "parameters", "value", "next_state")
    assert done.checked
    observations = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    policy = srl.load(run.path)
    for _ in range(3):
        wanted = policy.act(observations)
    assert act_alone(done.path, observations) == pytest.approx(wanted, abs=1e-4)


def test_bad_input_is_explained_and_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = untrained(tmp_path, "CartPole-v1")
    assert main(["export", str(run.path), "--out", str(tmp_path / "policy.pt")]) == 2
    assert "exported as .onnx" in capsys.readouterr().err
    there = tmp_path / "policy.onnx"
    there.write_text("precious")
    assert main(["export", str(run.path), "--out", str(there), "--checkpoint", "7"]) == 2
    assert "no checkpoint of step 7" in capsys.readouterr().err
    assert there.read_text() == "precious"
