"""A run's policy as a file for others: ONNX, checked against the policy it was made of."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.policy import Policy
from srl.api.spaces import Space, array_spec
from srl.base.config import from_data, to_data
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.experiments.loading import choose_checkpoint, load
from srl.runs import checkpoints, directory

ROOT = Path("runs")
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
    """Write a run's policy as ONNX: observations in; likeliest action, distribution parameters and value out.

    Normalisers and masks are part of it. A policy with a memory takes `state` and `first`, and gives `next_state`. By
    default the file is `policy.onnx` in the run's directory. Where onnxruntime is installed, the file is tried against
    the policy before it takes its place.
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f'exporting needs {" and ".join(missing)}, not installed here; pip install "srl[export]"')
    found = directory.find(run, ROOT)
    path = found.path / "policy.onnx" if out is None else Path(out)
    if path.suffix != ".onnx":
        raise ValueError(f"policies are exported as .onnx; found {path.name!r}")
    source = choose_checkpoint(found, checkpoint)
    trained = load(found.path, policy=policy, checkpoint=source)
    described = found.read_config()["policies"]
    name = policy or next(iter(described))
    algorithm = from_data(described[name]["algorithm"])
    if not hasattr(algorithm, "build_network"):
        raise ValueError(
            f"{type(algorithm).__name__} has no method build_network(observation, action, seed) that gives a torch "
            "network and its distribution, so its policies cannot be exported"
        )
    from srl.algorithms.export import write_onnx

    network, distribution = algorithm.build_network(trained.observation, trained.action, 0)
    parameters = checkpoints.read(source)[0][f"{name}/parameters"]
    facts = {
        "srl": json.dumps({"run": found.name, "checkpoint": source.name, "policy": name}),
        "observation_space": json.dumps(to_data(trained.observation)),
        "action_space": json.dumps(to_data(trained.action)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        inputs, outputs = write_onnx(network, distribution, trained.observation, parameters, temporary, facts)
        checked = importlib.util.find_spec("onnxruntime") is not None
        if checked:
            _compare(temporary, trained.policy, trained.observation)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return Export(path, tuple(inputs), tuple(outputs), checked)


def _compare(path: Path, policy: Policy, observation: Space) -> None:
    """Raise RuntimeError if the file computes anything else than the policy, on batches of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    for rows in TRIED:
        tree = map_tree(lambda spec, rows=rows: _random(spec, rows, generator), array_spec(observation))
        state: Tree | None = None
        first = np.ones(rows, bool)
        for _ in range(2):  # the second time with the memory of the first
            decision = policy.act(tree, state, first, greedy=True)
            feeds = {f"observation/{leaf}" if leaf else "observation": array for leaf, array in leaves(tree)}
            if "state" in decision:
                feeds |= {"state": np.zeros_like(decision["state"]) if state is None else state, "first": first}
            computed = dict(zip([out.name for out in session.get_outputs()], session.run(None, feeds), strict=True))
            _agree(computed, decision)
            if "state" not in decision:
                break
            state, first = decision["state"], np.zeros(rows, bool)


def _agree(computed: dict[str, Any], decision: Any) -> None:
    wanted = {f"action/{leaf}" if leaf else "action": array for leaf, array in leaves(decision["action"])}
    wanted["value"] = decision["value"]
    for name, array in wanted.items():
        whole = np.issubdtype(array.dtype, np.integer)
        same = computed[name] == array if whole else np.isclose(computed[name], array, TOLERANCE, TOLERANCE)
        if not np.all(same):
            raise RuntimeError(
                f"the exported file gives another {name!r} than the policy ({computed[name]} instead of {array}); the "
                "network does something that the exporter does not follow"
            )


def _random(spec: Any, rows: int, generator: np.random.Generator) -> Array:
    """Values that any space of this kind allows: the first of several choices, a mask that forbids nothing."""
    if np.issubdtype(np.dtype(spec.dtype), np.floating):
        return generator.normal(size=(rows, *spec.shape)).astype(spec.dtype)
    if spec.dtype == "uint8" and len(spec.shape) > 1:
        return generator.integers(0, 256, (rows, *spec.shape)).astype(spec.dtype)
    return np.full((rows, *spec.shape), 0 if spec.dtype == "int64" else 1, spec.dtype)
