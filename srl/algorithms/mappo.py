"""PPO for several agents: each by itself (IPPO), or with a critic that sees the whole game (MAPPO)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Dict, Space


@dataclass(frozen=True)
class IPPOConfig(PPOConfig):
    """Independent PPO (de Witt et al. 2020): every agent learns as if the others were part of its environment. Agents
    of one role share a network. The defaults are those of Yu et al. 2022 for cooperative games."""

    activation: Literal["tanh", "relu"] = "relu"
    """Between the layers."""
    epochs: int = 10
    """Passes over each batch."""
    num_minibatches: int = 1
    """Gradient steps per pass; the batch is cut into so many parts."""
    learning_rate: float = 7e-4
    """Adam's step size at the start of the run."""
    normalize_return: Literal["none", "running", "popart"] = "popart"
    """Let the critic learn values of mean 0 and deviation 1, whatever the size of the rewards: `running` by the
    statistics of all returns so far, `popart` by those of the last million or so, its last layer changing along so that
    no value jumps."""
    max_grad_norm: float = 10.0
    """The gradient is scaled down to this norm."""


@dataclass(frozen=True)
class MAPPOConfig(IPPOConfig):
    """PPO with a centralized critic (Yu et al. 2022): it sees the state of the whole game beside what its agent sees,
    the actor only the latter. PettingZoo environments are asked for the state; others must show it as a part of a Dict
    observation."""

    global_keys: tuple[str, ...] = ("state",)
    """Parts of a Dict observation that only the critic sees. To act, they are not needed."""

    def check(self, observation: Space, action: Space) -> None:
        parts = sorted(observation.items) if isinstance(observation, Dict) else None
        missing = [key for key in self.global_keys if parts is None or key not in parts]
        if missing:
            shown = f"has the parts {parts}" if parts else f"is {observation}"
            raise ValueError(
                f"mappo's critic sees {', '.join(map(repr, missing))}, a part of a Dict observation; this one {shown}. "
                "Name what is global by --mappo.global-keys, or use --algo ippo, which needs nothing of the kind"
            )
        super().check(observation, action)
