"""Export of a trained policy's greedy `act` to ONNX, for runtimes without torch or SRL."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from srl.api.spaces import Box, Space, array_spec, bounds_of
from srl.base.tree import SEPARATOR, Array, ArraySpec, from_leaves, leaves
from srl.networks.distributions.distribution import Distribution
from srl.networks.memory.recurrent import reset_state
from srl.networks.network import Network
from srl.networks.parameters import FlatParameters
from srl.networks.spaces.boxes import space_leaves

OBSERVATION, ACTION, VALUE = "observation", "action", "value"
STATE, FIRST, NEXT_STATE = "state", "first", "next_state"
ROWS = 2  # rows of the example batch: the exporter treats an axis of size 1 as constant


class Bounds(NamedTuple):
    """Bounds of a Box action."""

    low: Tensor
    high: Tensor
    integer: torch.dtype | None  # integer dtype of the environment's actions; None: real numbers

    def clip(self, action: Tensor) -> Tensor:
        """Return the action as the environment receives it."""
        if self.integer is None:
            return torch.clamp(action, self.low, self.high)
        return torch.clamp(action.round(), self.low, self.high).to(self.integer)


class GreedyModule(nn.Module):
    """The exported module. It maps observations (one tensor per leaf) and, for a policy with memory, `state` and
    `first` to action, distribution parameters, value and new state. Normalizers and masks are part of the network. Box
    actions are clipped to their bounds, and integers rounded. `unseen` holds the leaves that only the critic sees: they
    are not inputs, and if there are any, the value is not an output."""

    def __init__(
        self,
        network: Network,
        distribution: Distribution,
        paths: tuple[str, ...],
        unseen: dict[str, ArraySpec],
        bounds: dict[str, Bounds],
    ) -> None:
        super().__init__()
        self.network = network
        self._distribution = distribution
        self._paths = paths
        self._unseen = {path: torch.from_numpy(spec.empty(1)) for path, spec in unseen.items()}
        self._bounds = bounds

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {path: inputs[input_name(path)] for path in self._paths}
        rows = found[self._paths[0]].shape[0]
        zeros = {path: zero.expand(rows, *zero.shape[1:]) for path, zero in self._unseen.items()}
        observation = from_leaves({**found, **zeros})
        memory = [reset_state(inputs[STATE], inputs[FIRST])] if STATE in inputs else []
        parameters, value, *state = self.network(observation, *memory)
        outputs = dict(leaves(self._distribution.mode(parameters), ACTION))
        outputs |= {name: bounds.clip(outputs[name]) for name, bounds in self._bounds.items()}
        outputs["parameters"] = parameters
        if not self._unseen:
            outputs[VALUE] = value
        return {**outputs, NEXT_STATE: state[0]} if state else outputs


def input_name(path: str) -> str:
    """Return the name of an input: `observation`, or `observation/camera` for a leaf of a Dict space."""
    return f"{OBSERVATION}{SEPARATOR}{path}" if path else OBSERVATION


def bounds_in(action: Space) -> dict[str, Bounds]:
    """Return a map from output name to bounds, for each bounded Box in an action space."""
    limits = {name: _bounds(leaf) for name, leaf in space_leaves(action, ACTION) if isinstance(leaf, Box)}
    return {name: found for name, found in limits.items() if found.low.isfinite().any() or found.high.isfinite().any()}


def _bounds(box: Box) -> Bounds:
    low, high = (torch.from_numpy(bound).float() for bound in bounds_of(box))
    native = box.native_dtype or box.dtype
    return Bounds(low, high, getattr(torch, native) if np.dtype(native).kind in "iub" else None)


def write_onnx(
    network: Network,
    distribution: Distribution,
    observation: Space,
    action: Space,
    parameters: Array,
    path: Path,
    metadata: Mapping[str, str],
    global_keys: tuple[str, ...] = (),
) -> tuple[list[str], list[str]]:
    """Write the network with these parameters and `metadata` to a file. `global_keys` are the parts of the observation
    that only the critic sees. Returns the names of the inputs and outputs."""
    FlatParameters(network, gradients=False).load(torch.from_numpy(parameters.copy()))
    # Parameters are now views of one flat vector; the exporter needs separate tensors.
    for parameter in network.parameters():
        parameter.data = parameter.data.clone()
    shown = dict(leaves(array_spec(observation)))
    unseen = {path: spec for path, spec in shown.items() if path.partition(SEPARATOR)[0] in global_keys}
    specs = {path: spec for path, spec in shown.items() if path not in unseen}
    module = GreedyModule(network.eval(), distribution, tuple(specs), unseen, bounds_in(action)).eval()
    example = {input_name(name): torch.from_numpy(spec.empty(ROWS)) for name, spec in specs.items()}
    size = network.state_size
    if size:
        example |= {STATE: torch.zeros(ROWS, size), FIRST: torch.ones(ROWS, dtype=torch.bool)}
    with torch.no_grad():
        outputs = list(module(example))
    with _quiet():
        program = torch.onnx.export(
            module,
            kwargs={"inputs": example},
            dynamo=True,
            dynamic_shapes={"inputs": {name: {0: torch.export.Dim("batch")} for name in example}},
            input_names=list(example),
            output_names=outputs,
            verbose=False,
            optimize=True,
        )
        assert program is not None
        program.model.metadata_props.update(metadata)
        program.save(str(path), external_data=False)
    return list(example), outputs


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's messages about its own steps and about libraries that it does not use."""
    loggers = [logging.getLogger("torch.onnx"), logging.getLogger("onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
