"""A small MuZero network as a vector of parameters, evaluated in compiled code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from srl.base.blas import limit_blas_threads
from srl.base.tree import Array
from srl.search import mlp_kernels
from srl.search.mlp_kernels import CHANGE, TANH, UNIT, Layers, Work
from srl.search.results import Evaluation, Step
from srl.search.samples import NO_SAMPLES, ActionSamples, draw, root_seeds
from srl.search.states import aligned_zeros, as_array

VECTOR = 16
"""Numbers of a vector register (AVX-512)."""


@dataclass(frozen=True)
class MLPModelConfig:
    """Sizes of a network of dense layers: representation, dynamics and prediction.

    Hidden layers are rectified. The output of the representation and of the dynamics is a bounded latent state. The
    prediction maps a latent state to policy logits [A], value bins [B] and bins of the reward that led there [B]."""

    observation_size: int
    num_actions: int
    latent_size: int = 128
    representation: tuple[int, ...] = (128,)
    dynamics: tuple[int, ...] = (128,)
    prediction: tuple[int, ...] = (128,)
    """Sizes of the hidden layers."""
    num_bins: int = 21
    """Number of bins of values and rewards under the h transform; 1: numbers without transform."""
    bin_width: float = 1.0
    """Distance of two bins: bin i is at h(x) = (i - B // 2) * bin_width."""
    latent: Literal["tanh", "unit"] = "tanh"
    """Bounds of a latent state: tanh of each number, or each state scaled to [0, 1]."""
    discount: float = 0.997
    residual: bool = False
    """With tanh: add the latent state to the output of the dynamics, which then predict a change."""
    samples: ActionSamples | None = None
    """Each node has `num_actions` sampled actions. Its state is the latent state and what the samples need."""

    def __post_init__(self) -> None:
        if min(self.observation_size, self.num_actions, self.latent_size, *self._hidden()) < 1:
            raise ValueError(f"all sizes of a network must be at least 1, found {self}")
        if self.num_bins % 2 == 0:
            raise ValueError(f"num_bins must be odd, so that one bin is 0; found {self.num_bins}")
        if self.latent not in ("tanh", "unit"):
            raise ValueError(f"latent must be 'tanh' or 'unit', found {self.latent!r}")
        if self.residual and self.latent != "tanh":
            raise ValueError("residual dynamics need latent='tanh'")
        if self.samples and self.samples.count != self.num_actions:
            raise ValueError(
                f"num_actions must be the number of samples, {self.samples.count}; found {self.num_actions}"
            )

    @property
    def num_policy(self) -> int:
        """Number of outputs for the policy."""
        return self.samples.num_outputs if self.samples else self.num_actions

    @property
    def state_size(self) -> int:
        return self.latent_size + (self.samples.kept if self.samples else 0)

    def _hidden(self) -> tuple[int, ...]:
        return (*self.representation, *self.dynamics, *self.prediction)

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the sizes of the inputs and of all outputs of each part."""
        latent, outputs = self.latent_size, self.num_policy + 2 * self.num_bins
        num_inputs = self.samples.num_inputs if self.samples else self.num_actions
        return {
            "representation": (self.observation_size, *self.representation, latent),
            "dynamics": (latent + num_inputs, *self.dynamics, latent),
            "prediction": (latent, *self.prediction, outputs),
        }

    def layout(self) -> Iterator[tuple[str, int, tuple[int, ...]]]:
        """Yield name, position and shape of each array in the vector, such as ("dynamics.0.weight", 640, (130, 128)).

        Weights are [in, out], the transpose of those of `torch.nn.Linear`. The inputs of the dynamics are the latent
        state and the action as a one-hot vector."""
        start = 0
        for part, sizes in self.sizes().items():
            for index, (num_inputs, num_outputs) in enumerate(pairwise(sizes)):
                yield f"{part}.{index}.weight", start, (num_inputs, num_outputs)
                start += num_inputs * num_outputs
                yield f"{part}.{index}.bias", start, (num_outputs,)
                start += num_outputs

    @property
    def num_parameters(self) -> int:
        *_, (_, start, shape) = self.layout()
        return start + int(np.prod(shape))

    def new_parameters(self) -> Array:
        """Return a vector of zeros for the parameters, at a cache line: products with it take half of the time."""
        return aligned_zeros(self.num_parameters)

    def build(self, parameters: Array) -> MLPModel:
        return MLPModel(self, parameters)


class MLPModel:
    """The network with its parameters. `parameters` is used, not copied: write to it to change the network. It is
    fastest if it begins at a cache line, as `new_parameters` and the memory of torch do.

    `root` evaluates observations. The model itself is the `step` of a search, which then runs without Python code
    between simulations. One thread uses it at a time."""

    def __init__(self, config: MLPModelConfig, parameters: Array) -> None:
        if parameters.dtype != np.float32 or not parameters.flags.c_contiguous or not parameters.flags.aligned:
            raise ValueError("parameters must be a contiguous array of float32")
        if parameters.shape != (config.num_parameters,):
            raise ValueError(f"expected {config.num_parameters} parameters, found shape {parameters.shape}")
        self.config = config
        self.parameters = parameters
        self.root_bounds = TANH if config.latent == "tanh" else UNIT
        self.bounds = CHANGE if config.residual else self.root_bounds
        self.bin_width = np.float32(config.bin_width)
        self.discount = np.full(1, config.discount, np.float32)
        self.sampler = config.samples.build() if config.samples else NO_SAMPLES
        positions = {name: start for name, start, _ in config.layout()}
        limit_blas_threads()
        self.layers = {
            part: Layers(
                parameters,
                np.array([positions[f"{part}.{index}.weight"] for index in range(len(sizes) - 1)], np.int64),
                np.array(sizes, np.int64),
            )
            for part, sizes in config.sizes().items()
        }
        num_inputs, num_outputs = config.sizes()["prediction"][-2:]
        width = -(-num_outputs // VECTOR) * VECTOR
        index = len(config.prediction)
        self._heads = [parameters[positions[f"prediction.{index}.weight"] :][: num_inputs * num_outputs]]
        self._heads.append(parameters[positions[f"prediction.{index}.bias"] :][:num_outputs])
        self._padded = Layers(
            aligned_zeros((num_inputs + 1) * width), np.zeros(1, np.int64), np.array([num_inputs, width])
        )
        self._work: dict[int, Work] = {}

    def padded_heads(self) -> Layers:
        """Return a copy of the last layer of the prediction in which rows have whole vectors: products with it take
        half of the time."""
        num_inputs, width = self._padded.sizes.tolist()
        rows = self._padded.flat.reshape(num_inputs + 1, width)
        weights, bias = self._heads
        rows[:-1, : len(bias)] = weights.reshape(num_inputs, len(bias))
        rows[-1, : len(bias)] = bias
        return self._padded

    def work(self, num_lanes: int) -> Work:
        """Return memory for one pass of so many rows."""
        if num_lanes not in self._work:
            config = self.config
            widest = max(int(self._padded.sizes[1]), *(max(sizes[1:]) for sizes in config.sizes().values()))
            shapes = {
                "latent": (num_lanes, config.latent_size),
                "first": (num_lanes * widest,),
                "second": (num_lanes * widest,),
                "logits": (num_lanes, config.num_actions),
                "policy": (num_lanes, config.num_policy),
                "value": (num_lanes,),
                "reward": (num_lanes,),
                "kept": (num_lanes, config.state_size - config.latent_size),
                "chosen": (num_lanes, self.sampler.size),
            }
            if len(self._work) > 8:  # the number of lanes varies: keep what is small
                self._work.clear()
            arrays = {name: aligned_zeros(*shape) for name, shape in shapes.items()}
            if not config.samples:
                arrays["policy"] = arrays["logits"]
            self._work[num_lanes] = Work(**arrays)
        return self._work[num_lanes]

    def root(self, observations: Any, seeds: Array | None = None, allowed: Array | None = None) -> Evaluation:
        """Evaluate observations [L, D]. With samples, `seeds` [L] are 64-bit integers, or None for a search without
        noise, and `allowed` [L, outputs] are the choices that may be drawn."""
        inputs = np.ascontiguousarray(as_array(observations), np.float32)
        if inputs.ndim != 2 or inputs.shape[1] != self.config.observation_size:
            raise ValueError(f"expected observations [L, {self.config.observation_size}], found {inputs.shape}")
        work = self.work(len(inputs))
        mlp_kernels.represent(self.layers["representation"], inputs, self.root_bounds, work)
        self._predict(work)
        if not self.config.samples:
            return Evaluation(work.latent.copy(), work.value.copy(), work.logits.copy())
        work.kept[:, 0] = root_seeds(seeds, len(inputs))
        if allowed is not None:
            work.policy[~allowed] = -np.inf
        draw(self.sampler, work.policy, work.kept, work.logits)
        return Evaluation(self._state(work), work.value.copy(), work.logits.copy())

    def __call__(self, state: Any, action: Any) -> Step:
        """Return what follows from actions [L] in states [L, H]; the arrays are valid until the next call."""
        states, actions = as_array(state), np.ascontiguousarray(as_array(action), np.int64)
        work, num_latent = self.work(len(states)), self.config.latent_size
        np.copyto(work.latent, states[:, :num_latent])
        if self.config.samples:
            for row, edge in enumerate(actions.tolist()):
                mlp_kernels.choose(self.sampler, states[row, num_latent:], edge, row, work)
        mlp_kernels.imagine(self.layers["dynamics"], actions, self.sampler, self.bounds, work)
        self._predict(work)
        if not self.config.samples:
            return Step(work.latent, work.reward, self.discount, work.value, work.logits)
        draw(self.sampler, work.policy, work.kept, work.logits)
        return Step(self._state(work), work.reward, self.discount, work.value, work.logits)

    def _state(self, work: Work) -> Array:
        return np.concatenate((work.latent, work.kept), 1)

    def _predict(self, work: Work) -> None:
        config = self.config
        mlp_kernels.predict(self.layers["prediction"], self.padded_heads(), config.num_bins, self.bin_width, work)
