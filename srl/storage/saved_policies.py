"""Policies in checkpoints: choosing a checkpoint, and reading a policy from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import Expert, ExpertConfig
from srl.api.spaces import Space
from srl.base.config import TrustCode, from_file
from srl.base.errors import did_you_mean, nearest
from srl.base.tree import Array, Tree, leaves
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory

PARTS_OF_A_POLICY = {"algorithm": AlgorithmConfig, "observation": Space, "action": Space}


@dataclass(frozen=True)
class SavedPolicy:
    """One policy of a checkpoint, usable without the run directory."""

    name: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    parameters: Array
    metadata: Mapping[str, Any]  # `version`, `steps` and others, as of when it was saved


def find_checkpoint(path: str | Path, checkpoint: str | int | Path) -> Path:
    """Return `path` if it is a checkpoint, else the chosen checkpoint of the run with this path or name."""
    if checkpoints.is_checkpoint(Path(path)):
        return Path(path)
    return choose_checkpoint(run_directory.find(path, ROOT), checkpoint)


def choose_checkpoint(run: RunDirectory, which: str | int | Path) -> Path:
    """Return a run's checkpoint: `latest`, `best`, a name, a number of steps, or a path, which may be outside the run.
    Raises ValueError if it is unknown."""
    if checkpoints.is_checkpoint(Path(str(which))):
        return Path(str(which))
    known = checkpoints.checkpoints(run.checkpoints)
    if not known:
        raise FileNotFoundError(f"{run.path} has no checkpoint yet")
    if which == "latest":
        return known[-1]
    if which == "best":
        best = checkpoints.latest(run.checkpoints / checkpoints.BEST) or checkpoints.best_of(known)
        if best is None:
            raise ValueError(
                f"{run.path} has no best checkpoint: neither an evaluation (--eval-every) nor a checkpoint has the "
                "statistic by which the best is chosen (--best, by default the return). Use `latest`"
            )
        return best
    if isinstance(which, Path) or not str(which).isdigit():
        names = {path.name: path for path in known}
        path = names.get(str(which), Path(str(which)))
        if not path.exists():
            close = did_you_mean(str(which), ("latest", "best", *names))
            raise ValueError(
                f"no checkpoint '{which}'{close or '.'} Use latest, best, a name, a number of steps, or a path"
            )
        return path
    steps = {checkpoints.step_of(path): path for path in known}
    if int(which) not in steps:
        existing = ", ".join(f"{step:,}" for step in steps)
        raise ValueError(f"{run.checkpoints} has no checkpoint of step {int(which):,}; it has {existing}")
    return steps[int(which)]


def read_policy(source: Path, policy: str = "", or_only: bool = False, trust_code: TrustCode = False) -> SavedPolicy:
    """Read a policy from a checkpoint, by default its only one. With `or_only`, a single policy may have any name.

    Imports nothing but SRL unless the user's own run wrote the checkpoint or the user trusts its code; otherwise raises
    UntrustedCode.
    """
    name, described, parameters, metadata = _find_policy(source, policy, or_only)
    trusted = trust_code or checkpoints.is_own(source)
    parts = from_file(described, PARTS_OF_A_POLICY, f"{source}, policy {name!r}", trusted)
    return SavedPolicy(name, **parts, parameters=parameters, metadata=metadata)


def read_parameters(source: Path, policy: str) -> Array:
    """Read only the parameters of a policy, as for :func:`read_policy` with `or_only`."""
    return _find_policy(source, policy, or_only=True)[2]


def _find_policy(source: Path, policy: str, or_only: bool) -> tuple[str, Mapping[str, Any], Array, Mapping[str, Any]]:
    """Return the name of a policy, its description, its parameters and its metadata."""
    arrays, metadata = checkpoints.read(source)
    described = checkpoints.policies_in(source, metadata)
    if not policy and len(described) > 1:
        raise ValueError(f"{source} has several policies; choose one: {', '.join(described)} (`policy`, --policy)")
    name = policy or next(iter(described))
    if name not in described and or_only and len(described) == 1:
        name = next(iter(described))
    if name not in described:
        others = f"; it has {', '.join(described)}"
        raise ValueError(f"{source} has no policy {name!r}{nearest(name, described) or others}")
    parameters = arrays.get(f"{name}/parameters")
    if parameters is None or parameters.ndim != 1 or parameters.dtype != np.float32:
        raise checkpoints.CheckpointError(f"{source} has no parameters of the policy {name!r}")
    return name, described[name], parameters, metadata["policies"][name]


@dataclass(frozen=True)
class SavedExpert(ExpertConfig):
    """A policy of a checkpoint as an expert; it takes its most likely actions."""

    checkpoint: str
    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space

    @classmethod
    def read(cls, checkpoint: Path, trust_code: TrustCode = False) -> SavedExpert:
        """Read the only policy of a checkpoint."""
        saved = read_policy(checkpoint, trust_code=trust_code)
        return cls(str(checkpoint), saved.name, saved.algorithm.on_cpu(), saved.observation, saved.action)

    def check(self, observation: Space, action: Space) -> None:
        for name, known, space in (("observation", self.observation, observation), ("action", self.action, action)):
            if known != space:
                raise ValueError(
                    f"the expert in {self.checkpoint} has another {name} space, {known}; the environment has {space}"
                )
        if "state" in self.algorithm.decision_spec(observation, action):
            raise ValueError(f"the expert in {self.checkpoint} has a memory; an expert answers single observations")

    def build(self) -> Expert:
        policy = self.algorithm.build_policy(self.observation, self.action, seed=0)
        policy.load(read_parameters(Path(self.checkpoint), self.policy), 0)

        def answer(observation: Tree) -> Tree:
            count = len(next(leaves(observation))[1])
            return policy.act(observation, None, np.ones(count, bool), greedy=True)["action"]

        return answer
