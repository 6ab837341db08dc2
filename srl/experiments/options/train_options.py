"""All options of a run: one section per topic, and the algorithm's config."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, fields
from typing import Any

from srl.algorithms.ppo.config import PPOConfig
from srl.api.algorithm import AlgorithmConfig
from srl.experiments.options.sections import (
    AgentOptions,
    CheckpointOptions,
    ClusterOptions,
    EvaluationOptions,
    RunOptions,
    WorkerOptions,
)

SECTIONS: dict[str, type[Any]] = {
    "run": RunOptions,
    "workers": WorkerOptions,
    "agents": AgentOptions,
    "evaluation": EvaluationOptions,
    "checkpoints": CheckpointOptions,
    "cluster": ClusterOptions,
}
SECTION_OF = {each.name: section for section, kind in SECTIONS.items() for each in fields(kind)}
"""Option -> section. Names are unique across sections, so flags and keywords need no prefix."""


@dataclass(frozen=True)
class TrainOptions:
    """Options of a run. None means that the value is chosen for the environment and the machine."""

    algo: str = "ppo"
    """Algorithm by name, or your own config class as `package.module:Config` or `path/file.py:Config`."""
    algorithm: AlgorithmConfig = field(default_factory=PPOConfig)
    """Config of the algorithm. :func:`make_options` builds one from a name and keywords."""
    run: RunOptions = field(default_factory=RunOptions)
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    agents: AgentOptions = field(default_factory=AgentOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)

    def named_code(self) -> tuple[str, ...]:
        return (self.algo,) if ":" in self.algo else ()

    def value(self, name: str) -> Any:
        """Return the value of an option by name, whichever section it is in."""
        return getattr(getattr(self, SECTION_OF[name]), name)

    def replace(self, **values: Any) -> TrainOptions:
        """Return a copy with new values for options, which are named without their section."""
        changes = {name: value for name, value in values.items() if name not in SECTION_OF}
        for section in {SECTION_OF[name] for name in values.keys() & SECTION_OF.keys()}:
            inner = {name: value for name, value in values.items() if SECTION_OF.get(name) == section}
            changes[section] = dataclasses.replace(getattr(self, section), **inner)
        return dataclasses.replace(self, **changes)
