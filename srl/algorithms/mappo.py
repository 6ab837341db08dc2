"""PPO for several agents: independent learners (IPPO), or a critic that sees the global state (MAPPO)."""

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
    epochs: int = 10
    num_minibatches: int = 1
    learning_rate: float = 7e-4
    normalize_return: Literal["none", "running", "popart"] = "popart"
    max_grad_norm: float = 10.0


@dataclass(frozen=True)
class MAPPOConfig(IPPOConfig):
    """PPO with a centralized critic (Yu et al. 2022): the critic sees the global state and its agent's observation, the
    actor only the observation. The global state comes from a PettingZoo environment's `state`; other environments must
    provide it as part of a Dict observation."""

    global_keys: tuple[str, ...] = ("state",)

    def check(self, observation: Space, action: Space) -> None:
        parts = sorted(observation.items) if isinstance(observation, Dict) else None
        missing = [key for key in self.global_keys if parts is None or key not in parts]
        if missing:
            shown = f"has the parts {parts}" if parts else f"is {observation}"
            raise ValueError(
                f"mappo's critic sees {', '.join(map(repr, missing))}, a part of a Dict observation; this one {shown}. "
                "Name the global parts with --algo.global-keys, or use --algo ippo, which needs none"
            )
        super().check(observation, action)

    def wants_global_state(self) -> bool:
        return True
