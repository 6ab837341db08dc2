"""A run's policy as a file for others: ONNX, checked against the policy it was made of."""

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
from srl.base.config import to_data
from srl.base.files import replacing
from srl.base.tree import Array, Tree, from_leaves, leaves
from srl.networks.spaces.supported import split_mask
from srl.results.load import load
from srl.results.random_actions import random_actions
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.saved_policies import SavedPolicy, find_checkpoint, read_policy

TOLERANCE = 1e-3
TRIED = (1, 5)
"""Rows of the batches on which the file is tried: none of them is what the exporter saw."""


@dataclass(frozen=True)
class Export:
    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    checked: bool
    """Whether onnxruntime was there and gave the same actions as the policy."""


def export(
    run: str | Path,
    out: str | Path | None = None,
    *,
    policy: str = "",
    checkpoint: str | int | Path = "latest",
) -> Export:
    """Write the policy of a run, or of a checkpoint (its directory, wherever it was copied to), as ONNX: observations
    in; likeliest action, distribution parameters and value out.

    Normalizers, masks and the bounds of actions are part of it. Parts that only the critic sees (`global_keys`) are
    neither wanted nor is a value given then. A policy with a memory takes `state` and `first`, and
    gives `next_state`. By default the file is `policy.onnx` in the run's directory, or beside the checkpoint. Where
    onnxruntime is installed, the file is tried against the policy before it takes its place.
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f'exporting needs {" and ".join(missing)}, not installed here; pip install "srl[export]"')
    source = find_checkpoint(run, checkpoint)
    home = source.parent if checkpoints.is_checkpoint(Path(run)) else run_directory.find(run, ROOT).path
    path = home / "policy.onnx" if out is None else Path(out)
    if path.suffix != ".onnx":
        raise ValueError(f"policies are exported as .onnx; found {path.name!r}")
    saved = read_policy(source, policy)
    facts = {
        "srl": json.dumps({"run": home.name, "checkpoint": source.name, "policy": saved.name}),
        "observation_space": json.dumps(to_data(saved.observation)),
        "action_space": json.dumps(to_data(saved.action)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        inputs, outputs = _write(saved, temporary, facts)
        checked = importlib.util.find_spec("onnxruntime") is not None
        if checked:
            _compare(temporary, saved, load(source, policy=saved.name).policy)
    return Export(path, tuple(inputs), tuple(outputs), checked)


def _write(saved: SavedPolicy, path: Path, facts: dict[str, str]) -> tuple[list[str], list[str]]:
    from srl.algorithms.export import write_onnx

    network, distribution = saved.algorithm.build_network(saved.observation, saved.action, 0)
    try:
        return write_onnx(
            network, distribution, saved.observation, saved.action, saved.parameters, path, facts, saved.global_keys
        )
    except OSError:
        raise
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(
            f"the network of {type(saved.algorithm).__name__} cannot be written as ONNX: {reason} (torch.export "
            "must be able to follow it: no branches that hang on values, no calls out of torch)"
        ) from error


def _compare(path: Path, saved: SavedPolicy, policy: Policy) -> None:
    """Raise RuntimeError if the file computes anything else than the policy, on batches of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {entry.name for entry in session.get_inputs()}
    generator = np.random.default_rng(0)
    for rows in TRIED:
        state: Tree | None = None
        first = np.ones(rows, bool)
        for _ in range(2):  # the second time with the memory of the first
            observation = random_observations(saved, rows, generator)
            decision = policy.act(observation, state, first, greedy=True)
            feeds = {name: array for name, array in leaves(observation, "observation") if name in wanted}
            if "state" in decision:
                feeds |= {"state": np.zeros_like(decision["state"]) if state is None else state, "first": first}
            _agree(dict(zip(names, session.run(None, feeds), strict=True)), decision, saved.action)
            state, first = decision.get("state"), np.zeros(rows, bool)


def _agree(computed: dict[str, Any], decision: Decision, space: Space) -> None:
    action = _within_bounds(space, decision["action"])
    wanted: dict[str, Any] = dict(leaves(action, "action"))
    if "value" in computed:
        wanted["value"] = decision["value"]
    for name, array in wanted.items():
        rounded = 0.5 if computed[name].dtype.kind in "iub" else 0.0  # of a Box, where the policy's are real
        choices = np.issubdtype(array.dtype, np.integer)
        same = computed[name] == array if choices else np.isclose(computed[name], array, TOLERANCE, TOLERANCE + rounded)
        if not np.all(same):
            raise RuntimeError(
                f"the exported file gives another {name!r} than the policy ({computed[name]} instead of {array}); the "
                "network does something that the exporter does not follow"
            )


def _within_bounds(space: Space, action: Tree) -> Tree:
    """Actions [B, ...] as the file gives them, but for rounding."""
    if isinstance(space, Dict):
        assert isinstance(action, Mapping)
        return {name: _within_bounds(space.items[name], part) for name, part in action.items()}
    return np.clip(np.asarray(action), *bounds_of(space)).astype(space.dtype) if isinstance(space, Box) else action


def random_observations(saved: SavedPolicy, rows: int, generator: np.random.Generator) -> Tree:
    """Observations [rows, ...] that the space allows; a mask forbids some choices, and never all of one."""
    space, key = saved.observation, saved.mask_key
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
    if isinstance(space, Box) and space.dtype.startswith("float"):  # bounds may be as wide as a float can be
        return np.clip(generator.normal(size=(rows, *space.shape)), *bounds_of(space)).astype(space.dtype)
    return random_actions(space, rows, generator)


def _shaped(like: Tree, flat: Array) -> Tree:
    """Numbers [rows, n] as a tree of the same arrays as `like`, in the order of their names."""
    found: dict[str, Array] = {}
    for path, leaf in leaves(like):
        size = int(np.prod(leaf.shape[1:]))
        found[path], flat = flat[:, :size].reshape(leaf.shape).astype(leaf.dtype), flat[:, size:]
    shaped: Tree = from_leaves(found)
    return shaped
