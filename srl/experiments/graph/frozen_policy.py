"""Worker for a policy that does not learn: publishes its parameters once, where a trainer would."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from srl.api.worker import IDLE, Context, PollResult, WorkerConfig
from srl.storage.saved_policies import read_parameters


@dataclass(frozen=True)
class FrozenPolicyConfig(WorkerConfig):
    policy: str
    checkpoint: str  # checkpoint directory, which the worker's machine must be able to read

    def committed_policy(self) -> str:
        """Return the policy: it does not learn, but this worker commits and publishes it."""
        return self.policy

    def build(self, context: Context) -> FrozenPolicy:
        return FrozenPolicy(self, context)


class FrozenPolicy:
    def __init__(self, config: FrozenPolicyConfig, context: Context) -> None:
        parameters = read_parameters(Path(config.checkpoint), config.policy)
        commits, published = context.commits(config.policy), context.parameters(config.policy)
        if commits.version < 0:  # like a trainer: the run's checkpoints contain all its policies
            noted = {"steps": 0, "policy": config.policy, "wall_time": time.time()}
            commits.write(0, {"parameters": parameters}, noted)
        if published.version < 0:
            published.push(0, parameters)

    def poll(self) -> PollResult:
        return IDLE

    def state(self) -> dict[str, object]:
        return {}

    def restore(self, state: object) -> bool:
        return True

    def close(self) -> None:
        pass
