"""Short names of SRL's own parts, under which saved runs, checkpoints and worker processes refer to them.

A saved run contains these names and never a module path of this package, so that classes can move without breaking it.
Move or rename a class freely and change its path here; never change or reuse a name. Users' own classes are named
`package.module:Class` or `path/file.py:Class`.
"""

from __future__ import annotations

from typing import Any

from srl.base.errors import nearest
from srl.base.importing import load_object, name_of

PARTS = {
    # Options of a run
    "train-options": "srl.experiments.options.train_options:TrainOptions",
    "run-options": "srl.experiments.options.sections:RunOptions",
    "worker-options": "srl.experiments.options.sections:WorkerOptions",
    "agent-options": "srl.experiments.options.sections:AgentOptions",
    "evaluation-options": "srl.experiments.options.sections:EvaluationOptions",
    "checkpoint-options": "srl.experiments.options.sections:CheckpointOptions",
    "cluster-options": "srl.experiments.options.sections:ClusterOptions",
    # Algorithms
    "ppo": "srl.algorithms.ppo.config:PPOConfig",
    "ppg": "srl.algorithms.ppg:PPGConfig",
    "a2c": "srl.algorithms.a2c:A2CConfig",
    "impala": "srl.algorithms.impala:ImpalaConfig",
    "ippo": "srl.algorithms.mappo:IPPOConfig",
    "mappo": "srl.algorithms.mappo:MAPPOConfig",
    # Environments
    "gymnasium": "srl.environments.adapters.gymnasium:GymnasiumConfig",
    "vector": "srl.environments.adapters.vector:VectorConfig",
    "atari": "srl.environments.adapters.atari:AtariConfig",
    "minigrid": "srl.environments.adapters.minigrid:make",
    "envpool": "srl.environments.adapters.envpool:EnvPoolConfig",
    "pettingzoo": "srl.environments.pettingzoo.config:PettingZooConfig",
    "mujoco": "srl.environments.mujoco.lanes:MujocoConfig",
    "hide-and-seek": "srl.environments.hide_and_seek.lanes:HideAndSeekConfig",
    "lanes-function": "srl.environments.registry:LanesFunctionConfig",
    "team-reward": "srl.environments.adapters.team_reward:TeamRewardConfig",
    "self-play": "srl.populations.self_play:SelfPlayConfig",
    "opponent-pool": "srl.populations.pool:PoolConfig",
    # Spaces and layouts of arrays
    "box-space": "srl.api.spaces:Box",
    "discrete-space": "srl.api.spaces:Discrete",
    "multi-discrete-space": "srl.api.spaces:MultiDiscrete",
    "dict-space": "srl.api.spaces:Dict",
    "array-spec": "srl.base.tree:ArraySpec",
    "block-spec": "srl.api.block:BlockSpec",
    "team-spec": "srl.api.lanes:TeamSpec",
    "lane-spec": "srl.api.lanes:LaneSpec",
    "probe-result": "srl.experiments.graph.probe:Probed",
    # Workers and the streams between them
    "actor": "srl.workers.actor.worker:ActorConfig",
    "trainer": "srl.workers.trainer.worker:TrainerWorkerConfig",
    "policy": "srl.workers.policy:PolicyWorkerConfig",
    "evaluator": "srl.workers.evaluator:EvaluatorConfig",
    "frozen-policy": "srl.experiments.graph.frozen_policy:FrozenPolicyConfig",
    "role": "srl.workers.roles:Role",
    "push-stream": "srl.streams.push:PushStream",
    "request-stream": "srl.streams.request:RequestStream",
    # Benchmarks and tests
    "bench-uniform": "srl.bench.actor:UniformConfig",
    "bench-distant": "srl.bench.ring:DistantConfig",
    "bench-light-worker": "srl.bench.control:LightWorkerConfig",
    "counting": "srl.testing.algorithms:CountingConfig",
}
"""Name -> where the class or function is defined."""
NAMES = {path: name for name, path in PARTS.items()}


def part_name(kind: type) -> str:
    """Return the name under which data refers to `kind`. Raises ValueError for a class that has none."""
    path = name_of(kind)
    if not path.startswith("srl."):
        return path
    if path not in NAMES:
        raise ValueError(f"{path} has no short name; add it to PARTS in srl/base/part_names.py")
    return NAMES[path]


def load_part(name: str) -> Any:
    """Return the class or function with this short name or `package.module:Class`."""
    if name in PARTS:
        return load_object(PARTS[name])
    if ":" not in name:
        raise ValueError(f"SRL has no part named {name!r}{nearest(name, PARTS)}")
    return load_object(name)
