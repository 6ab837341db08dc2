"""Export of a policy to ONNX, checked against the policy itself."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.policy import Decision, Policy
from srl.api.spaces import Box, Dict, Space, bounds_of, choice_sizes
from srl.base.config import TrustCode, to_data
from srl.base.files import replacing
from srl.base.tree import Array, Tree, from_leaves, leaves
from srl.environments.random_actions import random_actions
from srl.networks.spaces.actions import split_mask
from srl.results.load import load
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.saved_policies import SavedPolicy, find_checkpoint, read_policy

TOLERANCE = 1e-3
TRIED = (1, 5)  # batch sizes used to check the file; the exporter uses another one


@dataclass(frozen=True)
class Export:
    path: Path
    policy: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    checked: bool  # whether onnxruntime is installed and returned the same actions as the policy


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    policy: str = "",
    checkpoint: str | int | Path = "latest",
    trust_code: TrustCode = False,
) -> Export:
    """Export a policy to ONNX from a run or from a checkpoint directory, which may be a copy.

    The input is a batch of observations; the outputs are the most likely action, the distribution parameters and the
    value. Normalizers, masks and the bounds of actions are included. If the critic reads keys that the actor does not
    (`global_keys`), these are not inputs, and there is no value. A recurrent policy has the inputs `state` and `first`
    and the output `next_state`. The file of a policy that searches has its network only: its actions are those of
    `simulations=0`.

    By default the file is `policy.onnx` in the run's directory, or next to the checkpoint. If onnxruntime is installed,
    the file is compared with the policy before it replaces an earlier one. `trust_code` is as for :func:`srl.load`.
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f'export needs {" and ".join(missing)}, which is not installed; pip install "srl-rl[export]"')
    source = find_checkpoint(run, checkpoint)
    home = source.parent if checkpoints.is_checkpoint(Path(run)) else run_directory.find(run, ROOT).path
    path = home / "policy.onnx" if out is None else Path(out)
    if path.suffix != ".onnx":
        raise ValueError(f"the file must end in .onnx; found {path.name!r}")
    saved = read_policy(source, policy, trust_code=trust_code)
    metadata = {
        "srl": json.dumps({"run": home.name, "checkpoint": source.name, "policy": saved.name}),
        "observation_space": json.dumps(to_data(saved.observation)),
        "action_space": json.dumps(to_data(saved.action)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        inputs, outputs = _write(saved, temporary, metadata)
        checked = importlib.util.find_spec("onnxruntime") is not None
        if checked:
            simulations = 0 if saved.algorithm.searches() else None  # the file has no search
            own = load(source, policy=saved.name, simulations=simulations, trust_code=trust_code)
            _compare(temporary, saved, own.policy)
    return Export(path, saved.name, tuple(inputs), tuple(outputs), checked)


def _write(saved: SavedPolicy, path: Path, metadata: dict[str, str]) -> tuple[list[str], list[str]]:
    from srl.algorithms.onnx_export import write_onnx

    network, distribution = saved.algorithm.build_network(saved.observation, saved.action, 0)
    try:
        inputs = (saved.observation, saved.action, saved.parameters, path, metadata)
        return write_onnx(network, distribution, *inputs, saved.algorithm.global_observation_keys())
    except OSError:
        raise
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(
            f"the network of {type(saved.algorithm).__name__} cannot be written as ONNX: {reason} (torch.export "
            "must be able to trace it: no branches that depend on values, no calls outside of torch)"
        ) from error


def _compare(path: Path, saved: SavedPolicy, policy: Policy) -> None:
    """Raise RuntimeError if the outputs of the file differ from those of the policy."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    expected = {entry.name for entry in session.get_inputs()}
    generator = np.random.default_rng(0)
    for rows in TRIED:
        state: Tree | None = None
        first = np.ones(rows, bool)
        for _ in range(2):  # the second time with the recurrent state of the first
            observation = random_observations(saved, rows, generator)
            decision = policy.act(observation, state, first, greedy=True)
            feeds = {name: array for name, array in leaves(observation, "observation") if name in expected}
            if "state" in decision:
                feeds |= {"state": np.zeros_like(decision["state"]) if state is None else state, "first": first}
            if "value" not in decision and (value := policy.value(observation, state, first)) is not None:
                decision = {**decision, "value": value}
            _check_equal(dict(zip(names, session.run(None, feeds), strict=True)), decision, saved.action)
            state, first = decision.get("state"), np.zeros(rows, bool)


def _check_equal(computed: dict[str, Any], decision: Decision, space: Space) -> None:
    action = _within_bounds(space, decision["action"])
    expected: dict[str, Any] = dict(leaves(action, "action"))
    if "value" in computed and "value" in decision:
        expected["value"] = decision["value"]
    for name, array in expected.items():
        rounded = (
            0.5 if computed[name].dtype.kind in "iub" else 0.0
        )  # a Box of integers, where the policy returns real numbers
        choices = np.issubdtype(array.dtype, np.integer)
        same = computed[name] == array if choices else np.isclose(computed[name], array, TOLERANCE, TOLERANCE + rounded)
        if not np.all(same):
            raise RuntimeError(
                f"{name!r} from the exported file differs from the policy's ({computed[name]} instead of {array}); "
                "torch.export could not trace a part of the network"
            )


def _within_bounds(space: Space, action: Tree) -> Tree:
    """Clip actions [B, ...] to their bounds, as the exported file does."""
    if isinstance(space, Dict):
        assert isinstance(action, Mapping)
        return {name: _within_bounds(space.items[name], part) for name, part in action.items()}
    return np.clip(np.asarray(action), *bounds_of(space)).astype(space.dtype) if isinstance(space, Box) else action


def random_observations(saved: SavedPolicy, rows: int, generator: np.random.Generator) -> Tree:
    """Draw random observations [rows, ...]. A mask forbids some choices, but never all choices of an action."""
    space, key = saved.observation, saved.algorithm.action_mask_key()
    tree = _random(space, rows, generator)
    if isinstance(space, Dict) and isinstance(tree, Mapping) and split_mask(space, saved.action, key)[1]:
        sizes = choice_sizes(saved.action)
        allowed = generator.random((rows, sum(sizes))) < 0.5
        for start, size in zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True):
            allowed[np.arange(rows), start + generator.integers(size, size=rows)] = True
        return {**tree, key: _shaped(tree[key], allowed)}
    return tree


def _random(space: Space, rows: int, generator: np.random.Generator) -> Tree:
    if isinstance(space, Dict):
        return {name: _random(item, rows, generator) for name, item in space.items.items()}
    if isinstance(space, Box) and space.dtype.startswith("float"):  # its bounds may be those of the dtype
        return np.clip(generator.normal(size=(rows, *space.shape)), *bounds_of(space)).astype(space.dtype)
    return random_actions(space, rows, generator)


def _shaped(like: Tree, flat: Array) -> Tree:
    """Split `flat` [rows, n] into a tree of arrays with the names, shapes and dtypes of `like`."""
    found: dict[str, Array] = {}
    for path, leaf in leaves(like):
        size = int(np.prod(leaf.shape[1:]))
        found[path], flat = flat[:, :size].reshape(leaf.shape).astype(leaf.dtype), flat[:, size:]
    shaped: Tree = from_leaves(found)
    return shaped
