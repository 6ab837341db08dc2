"""Algorithms, heads and networks, each a small one: what must hold for all of them is tried on this table."""

from __future__ import annotations

from typing import Any

from srl.algorithms.a2c import A2CConfig
from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.impala import ImpalaConfig
from srl.algorithms.mappo import MAPPOConfig
from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space

SMALL: dict[str, Any] = {"hidden_sizes": (5, 4), "memory_size": 4, "num_minibatches": 1, "learning_rate": 0.02}
ONCE = {key: value for key, value in SMALL.items() if key != "num_minibatches"}
EVERY_TERM: dict[str, Any] = {"clip": 0.05, "dual_clip": 1.1, "value_clip": 0.05, "kl_coefficient": 0.3}
FOUR, THREE_ARMS = Box((4,)), Discrete(3)
BOUNDED = Box((2,), low=-1.0, high=(1.0, 3.0))
HYBRID = Dict({"aim": Box((2,), low=-1.0, high=1.0), "key": Dict({"one": Discrete(3), "two": MultiDiscrete((2, 2))})})


def masked(choices: int) -> Dict:
    return Dict({"seen": FOUR, "action_mask": MultiDiscrete((2,) * choices)})


KINDS: dict[str, tuple[ActorCriticConfig, Space, Space]] = {
    "ppo": (PPOConfig(**SMALL), FOUR, THREE_ARMS),
    "value clip": (PPOConfig(**SMALL, value_clip=0.05), FOUR, THREE_ARMS),
    "dual clip": (PPOConfig(**SMALL, dual_clip=1.1), FOUR, THREE_ARMS),
    "divergence": (PPOConfig(**SMALL, kl_coefficient=0.5), FOUR, THREE_ARMS),
    "every term": (PPOConfig(**SMALL, **EVERY_TERM), FOUR, MultiDiscrete((2, 3))),
    "entropy alone": (PPOConfig(**SMALL, value_coefficient=0.0, entropy_coefficient=1.0), FOUR, BOUNDED),
    "plain": (PPOConfig(**SMALL, surrogate="plain"), FOUR, THREE_ARMS),
    "clip correction": (PPOConfig(**SMALL, correction="clip"), FOUR, THREE_ARMS),
    "vtrace correction": (PPOConfig(**SMALL, correction="vtrace", rho_clip=0.9), FOUR, BOUNDED),
    "impala": (ImpalaConfig(**SMALL), FOUR, THREE_ARMS),
    "a2c": (A2CConfig(**ONCE), FOUR, THREE_ARMS),
    "ppg": (PPGConfig(**SMALL, clone_coefficient=2.0), FOUR, THREE_ARMS),
    "ppg popart": (PPGConfig(**SMALL, normalize_return="popart"), FOUR, BOUNDED),
    "gaussian": (PPOConfig(**SMALL, **EVERY_TERM), FOUR, BOUNDED),
    "state std": (PPOConfig(**SMALL, std="state"), FOUR, BOUNDED),
    "squashed": (PPOConfig(**SMALL, box="squashed"), FOUR, BOUNDED),
    "squashed state std": (PPOConfig(**SMALL, **EVERY_TERM, box="squashed", std="state"), FOUR, BOUNDED),
    "hybrid": (PPOConfig(**SMALL, **EVERY_TERM), FOUR, HYBRID),
    "masked": (PPOConfig(**SMALL), masked(3), THREE_ARMS),
    "masked hybrid": (PPOConfig(**SMALL, **EVERY_TERM, box="squashed"), masked(7), HYBRID),
    "running": (PPOConfig(**SMALL, normalize_observation=True, normalize_return="running"), FOUR, THREE_ARMS),
    "popart": (PPOConfig(**SMALL, **EVERY_TERM, normalize_return="popart"), FOUR, BOUNDED),
    "relu": (PPOConfig(**SMALL, activation="relu"), FOUR, THREE_ARMS),
    "shared": (PPOConfig(**SMALL, towers="shared"), FOUR, THREE_ARMS),
    "image": (PPOConfig(**SMALL, body="lean"), Box((1, 36, 36), "uint8"), THREE_ARMS),
    "entities": (
        PPOConfig(**SMALL, entities=("things",), entity_size=4, attention_heads=2),
        Dict({"own": Box((2,)), "things": Box((3, 4))}),
        THREE_ARMS,
    ),
    "mappo": (MAPPOConfig(**SMALL), Dict({"seen": FOUR, "state": Box((3,))}), THREE_ARMS),
    "gru": (PPOConfig(**SMALL, **EVERY_TERM, memory="gru", chunk=4), FOUR, THREE_ARMS),
    "lstm": (PPOConfig(**SMALL, memory="lstm", chunk=4, burn_in=2), FOUR, BOUNDED),
    "separate gru": (PPOConfig(**SMALL, memory="gru", towers="separate"), FOUR, THREE_ARMS),
    "lstm vtrace": (ImpalaConfig(**SMALL, memory="lstm", normalize_return="popart"), FOUR, THREE_ARMS),
    "gru squashed": (PPOConfig(**SMALL, memory="gru", box="squashed", std="state"), FOUR, BOUNDED),
    "lstm hybrid": (PPOConfig(**SMALL, memory="lstm", towers="separate"), masked(7), HYBRID),
    "gru choices": (PPOConfig(**SMALL, memory="gru", normalize_observation=True), FOUR, MultiDiscrete((2, 3))),
    "ppg gru": (PPGConfig(**SMALL, memory="gru"), masked(3), THREE_ARMS),
}
