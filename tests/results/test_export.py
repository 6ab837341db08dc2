"""Exported policies return the same actions in a process that has neither srl nor torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PURSUIT, varied
from support.trained_runs import untrained
from support.trees import leaf

import srl
from srl.algorithms.ppo.config import PPOConfig
from srl.base.tree import leaves
from srl.cli.main import main
from srl.results.export import random_observations
from srl.storage.saved_policies import find_checkpoint, read_policy

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

ALONE = """
import json, sys
import numpy, onnxruntime
assert "srl" not in sys.modules and "torch" not in sys.modules
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("srl", "torch"):
            raise ImportError(f"{name} is not available")
sys.meta_path.insert(0, Forbid())
session = onnxruntime.InferenceSession(sys.argv[1])
observations = numpy.load(sys.argv[2])
feeds = {"observation": observations}
names = [output.name for output in session.get_outputs()]
if "next_state" in names:
    (size,) = [entry.shape[1] for entry in session.get_inputs() if entry.name == "state"]
    feeds |= {"state": numpy.zeros((len(observations), size), "float32"), "first": numpy.ones(len(observations), bool)}
    for _ in range(2):  # the second time with the memory of the first
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
    assert "written: policy policy, observation -> action, parameters, value" in shown
    assert "the same actions" in shown
    observations = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    expected = srl.load(run.path).act(observations)
    assert set(expected.tolist()) == {0, 1}
    assert act_alone(run.path / "policy.onnx", observations).tolist() == expected.tolist()


@pytest.mark.parametrize("algo", [pytest.param("apex", marks=pytest.mark.slow), "r2d2", "muzero", "alphazero"])
def test_a_network_of_an_off_policy_algorithm_is_exported_with_its_value(tmp_path: Path, algo: str) -> None:
    """Q networks with the value of the best action, MuZero's and AlphaZero's without a search."""
    settings = {"hidden_sizes": (16,), "memory_size": 8} if algo == "r2d2" else {"hidden_sizes": (16,)}
    environment = "game:cartpole" if algo == "alphazero" else "CartPole-v1"
    run = untrained(tmp_path, environment, algo=algo, **{algo: settings})
    done = srl.export(run.path)
    assert done.checked
    assert "value" in done.outputs
    assert ("next_state" in done.outputs) == (algo == "r2d2")


def test_the_real_valued_actions_of_a_policy_that_searches_are_exported_as_their_means(tmp_path: Path) -> None:
    run = untrained(tmp_path, "Pendulum-v1", algo="muzero", muzero={"hidden_sizes": (16,)})
    assert srl.export(run.path).checked
    observations = np.random.default_rng(0).uniform(-1.0, 1.0, (5, 3)).astype(np.float32)
    expected = srl.load(run.path, simulations=0).act(observations)
    assert act_alone(run.path / "policy.onnx", observations) == pytest.approx(expected, abs=1e-5)


def test_the_exported_policy_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick: dict[str, Any] = {"scheduler": "inline", "sinks": (), "lanes": 2, "horizon": 4, "steps": 60}
    roles = ("chaser_*=chasers", "runner_*=runners")
    run = srl.train(PURSUIT, root=tmp_path, roles=roles, algo="ippo", **quick)
    assert main(["export", str(run.path)]) == 2
    assert "has several policies; choose one: chasers, runners" in capsys.readouterr().err
    assert main(["export", str(run.path), "--policy", "runners"]) == 0
    assert "written: policy runners, observation" in capsys.readouterr().out
    assert main(["eval", str(run.path), "--episodes", "5", "--max-steps", "3"]) == 0
    assert ": 5 episodes\n  chasers return" in capsys.readouterr().out  # not one for each agent


VARIED = f"{varied.__file__}:Varied"
ALL_AT_ONCE = ({"observation": "parts", "action": "hybrid", "masked": True}, {"memory": "lstm"})
FEW = [
    ({"observation": "vector", "action": "discrete", "masked": True}, {}),
    ({"observation": "vector", "action": "several", "masked": True}, {"memory": "gru", "towers": "separate"}),
    ({"observation": "choices", "action": "binary"}, {}),
    ({"observation": "image", "action": "discrete"}, {}),
    ({"observation": "image", "action": "box"}, {"body": "impala", "std": "state"}),
    ({"observation": "camera", "action": "box"}, {"box": "squashed", "std": "state", "memory": "gru"}),
    ({"observation": "vector", "action": "box"}, {}),
    ({"observation": "parts", "action": "hybrid"}, {"box": "squashed", "normalize_return": "popart"}),
]


@pytest.mark.parametrize(
    ("spaces", "options"),
    [ALL_AT_ONCE, *(pytest.param(*case, marks=pytest.mark.slow) for case in FEW)],
    ids=lambda case: "-".join(str(value) for value in case.values()),
)
def test_all_kinds_of_policies_act_the_same_after_export(
    tmp_path: Path, spaces: dict[str, Any], options: dict[str, Any]
) -> None:
    config = PPOConfig(memory_size=8, hidden_sizes=(16,), normalize_observation=True)
    run = untrained(tmp_path, VARIED, spaces, ppo=replace(config, **options))
    done = srl.export(run.path, tmp_path / "out" / "policy.onnx")
    assert done.checked
    assert ("next_state" in done.outputs) == ("memory" in options)
    saved = read_policy(find_checkpoint(run.path, "latest"))
    policy = srl.load(run.path)
    session = onnxruntime.InferenceSession(str(done.path))
    generator = np.random.default_rng(1)
    rows = 32
    state = {}
    if "memory" in options:
        (size,) = (entry.shape[1] for entry in session.get_inputs() if entry.name == "state")
        state = {"state": np.zeros((rows, size), np.float32), "first": np.ones(rows, bool)}
    for _ in range(3):
        first = generator.random(rows) < 0.3
        observation = random_observations(saved, rows, generator)
        feeds = {f"observation/{path}" if path else "observation": leaf for path, leaf in leaves(observation)}
        if state:
            state["first"] |= first
        found = dict(zip(done.outputs, session.run(None, {**feeds, **state}), strict=True))
        for path, expected in leaves(by_position(policy.act(observation, first=first))):
            given = found[f"action/{path}" if path else "action"]
            near = 1e-5
            if path == "zoom":  # integers: rounded, perhaps to either side
                assert given.dtype == expected.dtype == np.uint8
                near = 1.0
            assert given == pytest.approx(expected.astype(float), abs=near)
        if state:
            state = {"state": found["next_state"], "first": np.zeros(rows, bool)}
        if spaces.get("masked"):
            forbidden = leaf(observation, "action_mask") == 0
            logits = found["parameters"][:, : forbidden.shape[1]]
            assert forbidden.any()
            assert (logits[forbidden] < -1e8).all()


def by_position(action: Any) -> Any:
    """Return an action with the names of the file: items of a tuple are named by their positions."""
    if isinstance(action, tuple):
        action = {str(position): part for position, part in enumerate(action)}
    return {name: by_position(part) for name, part in action.items()} if isinstance(action, dict) else action


def test_actions_of_a_box_are_within_its_bounds(tmp_path: Path) -> None:
    run = untrained(tmp_path, VARIED, {"action": "hybrid"})
    policy = srl.load(run.path)
    action = policy.act(np.ones((50, 3), np.float32), greedy=False)
    assert np.abs(action["where"]).max() <= 0.1
    decision = policy.policy.act(np.ones((50, 3), np.float32), None, np.ones(50, bool))
    assert np.abs(leaf(decision, "action", "where")).max() > 0.1


@pytest.mark.slow
def test_a_copied_checkpoint_is_exported_next_to_it(tmp_path: Path) -> None:
    run = untrained(tmp_path, "Pendulum-v1", ppo=PPOConfig(memory="gru", memory_size=8))
    copied = tmp_path / "elsewhere" / "mine"
    shutil.copytree(find_checkpoint(run.path, "latest"), copied)
    shutil.rmtree(run.path)
    assert main(["export", str(copied)]) == 0
    observations = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    policy = srl.load(copied)
    for _ in range(3):
        expected = policy.act(observations)
    assert act_alone(copied.parent / "policy.onnx", observations) == pytest.approx(expected, abs=1e-4)


BRANCHING = """
import torch


class Branching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, observation):
        both = self.layer(observation)
        if both.sum().item() > 0.0:
            both = both * 2.0
        return both[:, :2], both[:, 2]


def make(observation, action):
    return Branching()
"""


def test_the_error_for_a_network_that_cannot_be_exported_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "branching.py").write_text(BRANCHING)
    run = untrained(tmp_path, "CartPole-v1", ppo=PPOConfig(network=f"{tmp_path}/branching.py:make"))
    assert main(["export", str(run.path)]) == 2
    shown = capsys.readouterr().err
    assert "the network of PPOConfig cannot be written as ONNX" in shown.splitlines()[-1]
    assert "if both.sum().item() > 0.0" in shown, "the line in the user's code"
    assert "torch/export" not in shown.partition("Traceback")[0]
    assert not list(run.path.glob("*.onnx"))


def test_bad_input_is_explained_and_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = untrained(tmp_path, "CartPole-v1")
    assert main(["export", str(run.path), "--out", str(tmp_path / "policy.pt")]) == 2
    assert "must end in .onnx" in capsys.readouterr().err
    there = tmp_path / "policy.onnx"
    there.write_text("precious")
    assert main(["export", str(run.path), "--out", str(there), "--checkpoint", "7"]) == 2
    assert "no checkpoint of step 7" in capsys.readouterr().err
    assert there.read_text() == "precious"


def test_keys_that_only_the_critic_reads_are_no_inputs(tmp_path: Path) -> None:
    options: dict[str, Any] = {"algo": "mappo", "mappo": {"epochs": 1, "hidden_sizes": (8,)}, "recipe": "none"}
    sizes: dict[str, Any] = {"scheduler": "inline", "sinks": (), "lanes": 2, "horizon": 4, "steps": 1}
    run = srl.train("pettingzoo:classic.tictactoe_v3", root=tmp_path, name="run", **options, **sizes)
    exported = srl.export(run.path)
    assert exported.inputs == ("observation/action_mask", "observation/observation")
    assert "value" not in exported.outputs
    assert exported.checked, "on batches of 1 and 5 rows, by the policy itself"


@pytest.mark.slow
def test_entities_are_exported_for_batches_of_any_size(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    small = {"epochs": 1, "hidden_sizes": (8,), "entity_size": 8, "memory_size": 8, "attention_heads": 2}
    sizes: dict[str, Any] = {"scheduler": "inline", "sinks": (), "lanes": 1, "horizon": 4, "batch": 16, "steps": 1}
    run = srl.train("hide-and-seek/quadrant", root=tmp_path, name="run", ppo=small, **sizes)
    exported = srl.export(run.path)
    assert "observation/box_obs" in exported.inputs
    assert exported.checked
