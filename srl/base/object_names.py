"""Names of classes and functions: short names for SRL's own components, `package.module:name` and `path/file.py:name`.

Saved runs, checkpoints and worker processes refer to these components by the short names in PARTS and never by a module
path of this package, so that classes can move without breaking a saved run. Move or rename a class freely and change
its path here; never change or reuse a short name.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from srl.base.errors import nearest

FILE_MODULE_PREFIX = "srl_file_"
PROMPT = "__main__:"  # begin of the names of objects that were defined at a prompt or in a notebook
LOCAL = "local."
"""Begin of the names of lambdas, of objects that were defined inside functions, and of others without a name of their
own. Such an object is found only in the process that made its name: `local.PROCESS.NUMBER:NAME`."""
_PROCESS = secrets.token_hex(4)
_LOCAL: dict[str, Any] = {}  # name -> object

PARTS = {
    # Options of a run
    "train-options": "srl.experiments.options.train_options:TrainOptions",
    "run-options": "srl.experiments.options.sections:RunOptions",
    "worker-options": "srl.experiments.options.sections:WorkerOptions",
    "agent-options": "srl.experiments.options.sections:AgentOptions",
    "evaluation-options": "srl.experiments.options.sections:EvaluationOptions",
    "checkpoint-options": "srl.experiments.options.sections:CheckpointOptions",
    "cluster-options": "srl.experiments.options.sections:ClusterOptions",
    # Sweeps
    "sweep-plan": "srl.experiments.sweeps.plan:Plan",
    "sweep-variant": "srl.experiments.sweeps.plan:Variant",
    "sweep-search": "srl.experiments.sweeps.plan:Search",
    # Algorithms
    "ppo": "srl.algorithms.ppo.config:PPOConfig",
    "ppg": "srl.algorithms.ppg:PPGConfig",
    "a2c": "srl.algorithms.a2c:A2CConfig",
    "impala": "srl.algorithms.impala:ImpalaConfig",
    "ippo": "srl.algorithms.mappo:IPPOConfig",
    "mappo": "srl.algorithms.mappo:MAPPOConfig",
    "sac": "srl.algorithms.sac.config:SACConfig",
    "td3": "srl.algorithms.sac.config:TD3Config",
    "ddpg": "srl.algorithms.sac.config:DDPGConfig",
    "dqn": "srl.algorithms.dqn.config:DQNConfig",
    "rainbow": "srl.algorithms.dqn.config:RainbowConfig",
    "apex": "srl.algorithms.dqn.config:ApeXConfig",
    "r2d2": "srl.algorithms.r2d2.config:R2D2Config",
    "vdn": "srl.algorithms.qmix.config:VDNConfig",
    "qmix": "srl.algorithms.qmix.config:QMIXConfig",
    "muzero": "srl.algorithms.muzero.config:MuZeroConfig",
    "alphazero": "srl.algorithms.alphazero.config:AlphaZeroConfig",
    "bc": "srl.algorithms.offline.config:BCConfig",
    "dagger": "srl.algorithms.offline.config:DAggerConfig",
    "iql": "srl.algorithms.offline.config:IQLConfig",
    "td3bc": "srl.algorithms.offline.config:TD3BCConfig",
    "cql": "srl.algorithms.offline.config:CQLConfig",
    "saved-expert": "srl.storage.saved_policies:SavedExpert",
    # Environments
    "gymnasium": "srl.environments.adapters.gymnasium:GymnasiumConfig",
    "vector": "srl.environments.adapters.vector:VectorConfig",
    "atari": "srl.environments.adapters.atari:AtariConfig",
    "minigrid": "srl.environments.adapters.minigrid:make",
    "envpool": "srl.environments.adapters.envpool:EnvPoolConfig",
    "pettingzoo": "srl.environments.pettingzoo.config:PettingZooConfig",
    "mujoco": "srl.environments.mujoco.lanes:MujocoConfig",
    "hide-and-seek": "srl.environments.hide_and_seek.lanes:HideAndSeekConfig",
    "game": "srl.environments.games.config:GameConfig",
    "row-game": "srl.environments.games.boards:RowGameConfig",
    "cartpole-game": "srl.environments.games.cartpole:CartPoleConfig",
    "openspiel-game": "srl.environments.games.openspiel:OpenSpielConfig",
    "pettingzoo-game": "srl.environments.games.pettingzoo:PettingZooGameConfig",
    "planned-game": "srl.testing.probe_simulators:Planned",
    "replied-game": "srl.testing.probe_simulators:Replied",
    "lanes-function": "srl.environments.registry:LanesFunctionConfig",
    "team-reward": "srl.environments.adapters.team_reward:TeamRewardConfig",
    "previous-step": "srl.environments.adapters.previous_step:PreviousStepConfig",
    "self-play": "srl.populations.self_play:SelfPlayConfig",
    "opponent-pool": "srl.populations.opponent_pool:PoolConfig",
    # Spaces and layouts of arrays
    "box-space": "srl.api.spaces:Box",
    "discrete-space": "srl.api.spaces:Discrete",
    "multi-discrete-space": "srl.api.spaces:MultiDiscrete",
    "dict-space": "srl.api.spaces:Dict",
    "array-spec": "srl.base.tree:ArraySpec",
    "block-spec": "srl.api.block:BlockSpec",
    "team-spec": "srl.api.lanes:TeamSpec",
    "lane-spec": "srl.api.lanes:LaneSpec",
    "environment-profile": "srl.experiments.graph.environment_probe:EnvironmentProfile",
    # Workers and the streams between them
    "actor": "srl.workers.actor.worker:ActorConfig",
    "trainer": "srl.workers.trainer.worker:TrainerWorkerConfig",
    "policy": "srl.workers.policy:PolicyWorkerConfig",
    "evaluator": "srl.workers.evaluator:EvaluatorConfig",
    "frozen-policy": "srl.experiments.graph.frozen_policy:FrozenPolicyConfig",
    "replay-worker": "srl.workers.replay.worker:ReplayWorkerConfig",
    "reanalyze-worker": "srl.workers.replay.reanalyze:ReanalyzeWorkerConfig",
    "reanalyzer": "srl.workers.reanalyzer:ReanalyzerConfig",
    "buffer-worker": "srl.workers.replay.buffer:BufferWorkerConfig",
    "role": "srl.workers.role:Role",
    "push-stream": "srl.streams.push:PushStream",
    "request-stream": "srl.streams.request:RequestStream",
    "sample-stream": "srl.streams.sample:SampleStream",
    "replay": "srl.api.dataflow:Replay",
    "transitions": "srl.api.dataflow:Transitions",
    "sequences": "srl.api.dataflow:Sequences",
    "priorities": "srl.api.dataflow:Priorities",
    "reanalysis": "srl.api.dataflow:Reanalysis",
    "random-shift": "srl.algorithms.offpolicy.config:RandomShift",
    "hindsight-goals": "srl.api.dataflow:HindsightGoals",
    "goal-rewards": "srl.replay.goals:GoalRewardsConfig",
    "stream-recording": "srl.datasets.stream_recorder:StreamRecording",
    "replay-saving": "srl.replay.saving:ReplaySaving",
    # Searches
    "gumbel-search": "srl.search.search:GumbelSearch",
    "puct-search": "srl.search.search:PUCTSearch",
    "mlp-model": "srl.search.mlp:MLPModelConfig",
    "action-samples": "srl.search.samples:ActionSamples",
    # Callbacks
    "early-stopping": "srl.callbacks.early_stopping:EarlyStopping",
    "option-schedule": "srl.callbacks.option_schedule:OptionSchedule",
    "curriculum": "srl.callbacks.option_schedule:Curriculum",
    "webhook": "srl.callbacks.webhook:Webhook",
    # Benchmarks
    "bench-distant": "srl.bench.random_policy:RandomConfig",
    "bench-simulated-worker": "srl.bench.control:SimulatedWorkerConfig",
}
"""Map from short name to the path of the class or function."""
NAMES = {path: name for name, path in PARTS.items()}


def part_name(kind: type) -> str:
    """Return the name that stands for a class in configs and messages. Raises ValueError if it has none."""
    path = name_of(kind)
    if not path.startswith("srl."):
        return path
    if path not in NAMES:
        raise ValueError(f"{path} has no short name; add it to PARTS in srl/base/object_names.py")
    return NAMES[path]


def load_part(name: str) -> Any:
    """Return the class or function with this short name or `package.module:Class`."""
    if name in PARTS:
        return load_object(PARTS[name])
    if ":" not in name:
        raise ValueError(f"no SRL component is named {name!r}{nearest(name, PARTS)}")
    return load_object(name)


def load_object(name: str) -> Any:
    """Import and return the object called `package.module:name` or `path/file.py:name`.

    A file is imported once per process, under a module name derived from its path, so that its classes are unique and
    :func:`name_of` works for them.
    """
    source, separator, attribute = name.rpartition(":")
    if not separator or not source or not attribute:
        raise ValueError(f"{name!r} does not name an object; write 'package.module:name' or 'path/file.py:name'")
    if source.startswith(LOCAL):
        return _load_local(name, attribute)
    module = _load_file(source) if source.endswith(".py") else _load_module(source)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{source} has no {attribute!r}{nearest(part, _defined_in(found, module))}")
        found = getattr(found, part)
    return found


def _defined_in(found: Any, module: ModuleType) -> list[str]:
    """Return the names of classes and functions that a user may mean: in a file, not those that it imports."""
    is_file = module.__name__.startswith((FILE_MODULE_PREFIX, "__main__"))
    names = {key: value for key, value in vars(found).items() if callable(value)} if hasattr(found, "__dict__") else {}
    own = {key: not is_file or getattr(value, "__module__", "") == module.__name__ for key, value in names.items()}
    return [key for key, is_own in own.items() if is_own and not key.startswith("_")]


def name_of(thing: Any) -> str:
    """Return the name of a class or function, by which other processes can import it unless it is private (see
    `refuse_private_code`)."""
    name, source = getattr(thing, "__qualname__", ""), getattr(thing, "__module__", None)
    if not name or "<" in name or source is None:
        return _name_local(thing, name or type(thing).__qualname__)
    if source == "__main__" or source.startswith(FILE_MODULE_PREFIX):
        module = sys.modules.get(source)
        spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
        if source == "__main__" and spec is not None:
            source = spec.name
        elif file is not None and os.path.exists(file):
            source = os.path.abspath(file)
    return f"{source}:{name}"


def local_name(thing: Any) -> str:
    """Return the name of a function or class as its author wrote it: `make` also for `main.<locals>.make`."""
    name = getattr(thing, "__qualname__", type(thing).__qualname__).rpartition("<locals>.")[2]
    return str(name).replace("<lambda>", "lambda")


def refuse_private_code(data: Any, instead: str = 'or train with scheduler="inline"') -> None:
    """Raise ValueError if plain data names code that only this process can find, which was defined at a prompt, in a
    notebook or inside a function. `instead` says what else the user can do."""
    if isinstance(data, str) and data.startswith((PROMPT, LOCAL)):
        name = data.rpartition(":")[2].rpartition("<locals>.")[2]
        if data.startswith(PROMPT):
            what = f"{name} was defined at a prompt or in a notebook"
        elif "<lambda>" in data or "<locals>" not in data:
            what, name = f"a {name.strip(chr(60) + chr(62))} has no name", "NAME"
        else:
            what = f"{name} was defined inside a function"
        raise ValueError(
            f"{what}, so worker processes cannot import it: define it at the top level of a file and name it "
            f'"path/file.py:{name}", {instead}'
        )
    for item in data.values() if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else ():
        refuse_private_code(item, instead)


def _name_local(thing: Any, name: str) -> str:
    known = next((known for known, each in _LOCAL.items() if each is thing), None)
    if known is None:
        known = f"{LOCAL}{_PROCESS}.{len(_LOCAL) + 1}:{name}"
        _LOCAL[known] = thing
    return known


def _load_local(name: str, qualname: str) -> Any:
    if name not in _LOCAL:
        raise ValueError(
            f"{qualname} was a lambda or was defined inside a function of the program that trained this run, where no "
            "other process finds it: pass the environment (env=..., --env NAME), or the same function or class in "
            "trust_code=[...]"
        )
    return _LOCAL[name]


def _load_module(name: str) -> ModuleType:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if main is not None and spec is not None and spec.name == name:
        return main
    if name in sys.modules:
        return sys.modules[name]
    here = os.getcwd()
    if here not in sys.path and not name.startswith("srl."):
        sys.path.append(here)  # an installed command does not search the working directory; `python -m` does
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if not (name == missing or name.startswith(f"{missing}.")):
            raise ValueError(f"cannot import {name}: it needs {missing!r}, which is not installed") from error
        parent, _, last = missing.rpartition(".")
        raise ValueError(f"no module {missing!r}{nearest(last, _siblings(parent))}") from error


def _siblings(package: str) -> list[str]:
    """Return the modules in a package, or in the working directory (the whole search path has too many)."""
    import pkgutil

    paths = list(sys.modules[package].__path__) if package in sys.modules else [os.getcwd()]
    return [module.name for module in pkgutil.iter_modules(paths)]


def _load_file(source: str) -> ModuleType:
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        beside = [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ValueError(f"no file {source} (looked at {path}){nearest(path.name, beside) if beside else ''}")
    main = sys.modules.get("__main__")
    main_file = getattr(main, "__file__", None)
    if main is not None and main_file is not None and Path(main_file).resolve() == path:
        return main
    stem = "".join(c if c.isalnum() else "_" for c in path.stem)
    name = f"{FILE_MODULE_PREFIX}{stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not an importable Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # as for a script, so that it can import its neighbors
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
