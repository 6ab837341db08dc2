"""SRL, ReaLly Scalable RL: the public names. Everything is imported when it is first used."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srl import callbacks as callbacks
    from srl import testing as testing
    from srl.algorithms.a2c import A2CConfig as A2CConfig
    from srl.algorithms.alphazero.config import AlphaZeroConfig as AlphaZeroConfig
    from srl.algorithms.dqn.config import ApeXConfig as ApeXConfig
    from srl.algorithms.dqn.config import DQNConfig as DQNConfig
    from srl.algorithms.dqn.config import RainbowConfig as RainbowConfig
    from srl.algorithms.impala import ImpalaConfig as ImpalaConfig
    from srl.algorithms.mappo import IPPOConfig as IPPOConfig
    from srl.algorithms.mappo import MAPPOConfig as MAPPOConfig
    from srl.algorithms.muzero.config import MuZeroConfig as MuZeroConfig
    from srl.algorithms.offline.config import BCConfig as BCConfig
    from srl.algorithms.offline.config import CQLConfig as CQLConfig
    from srl.algorithms.offline.config import DAggerConfig as DAggerConfig
    from srl.algorithms.offline.config import IQLConfig as IQLConfig
    from srl.algorithms.offline.config import TD3BCConfig as TD3BCConfig
    from srl.algorithms.ppg import PPGConfig as PPGConfig
    from srl.algorithms.ppo.config import PPOConfig as PPOConfig
    from srl.algorithms.qmix.config import QMIXConfig as QMIXConfig
    from srl.algorithms.qmix.config import VDNConfig as VDNConfig
    from srl.algorithms.r2d2.config import R2D2Config as R2D2Config
    from srl.algorithms.sac.config import DDPGConfig as DDPGConfig
    from srl.algorithms.sac.config import SACConfig as SACConfig
    from srl.algorithms.sac.config import TD3Config as TD3Config
    from srl.api.experiment import Experiment as Experiment
    from srl.callbacks.callback import Callback as Callback
    from srl.environments.registry import lanes_config as lanes_config
    from srl.experiments.graph.customization import rewired as rewired
    from srl.experiments.graph.customization import with_buffer_workers as with_buffer_workers
    from srl.experiments.options.train_options import TrainOptions as TrainOptions
    from srl.experiments.session.launch import resume as resume
    from srl.experiments.session.launch import train as train
    from srl.experiments.session.run import Run as Run
    from srl.experiments.session.run import RunFailed as RunFailed
    from srl.experiments.sweeps.sweep import sweep as sweep
    from srl.results.collect import collect as collect
    from srl.results.compare import compare as compare
    from srl.results.evaluate import evaluate as evaluate
    from srl.results.export import export as export
    from srl.results.league import league as league
    from srl.results.load import load as load
    from srl.results.plot import plot as plot
    from srl.results.record import record as record
    from srl.results.recorded_blocks import recorded_blocks as recorded_blocks
    from srl.results.replay import replay_run as replay_run
    from srl.results.runs import load_run as load_run

__version__ = "0.1.0"

_NAMES = {
    "srl.algorithms.a2c": "A2CConfig",
    "srl.algorithms.dqn.config": "ApeXConfig DQNConfig RainbowConfig",
    "srl.algorithms.impala": "ImpalaConfig",
    "srl.algorithms.mappo": "IPPOConfig MAPPOConfig",
    "srl.algorithms.muzero.config": "MuZeroConfig",
    "srl.algorithms.offline.config": "BCConfig CQLConfig DAggerConfig IQLConfig TD3BCConfig",
    "srl.algorithms.ppg": "PPGConfig",
    "srl.algorithms.ppo.config": "PPOConfig",
    "srl.algorithms.qmix.config": "QMIXConfig VDNConfig",
    "srl.algorithms.r2d2.config": "R2D2Config",
    "srl.algorithms.alphazero.config": "AlphaZeroConfig",
    "srl.algorithms.sac.config": "DDPGConfig SACConfig TD3Config",
    "srl.api.experiment": "Experiment",
    "srl.callbacks.callback": "Callback",
    "srl.environments.registry": "lanes_config",
    "srl.experiments.graph.customization": "rewired with_buffer_workers",
    "srl.experiments.options.train_options": "TrainOptions",
    "srl.experiments.session.launch": "resume train",
    "srl.experiments.session.run": "Run RunFailed",
    "srl.experiments.sweeps.sweep": "sweep",
    **{
        f"srl.results.{name}": name
        for name in ("collect", "compare", "evaluate", "export", "league", "load", "plot", "record")
    },
    "srl.results.recorded_blocks": "recorded_blocks",
    "srl.results.replay": "replay_run",
    "srl.results.runs": "load_run",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

_PACKAGES = ("callbacks", "testing")


@functools.cache
def _short_traceback(function: Any) -> Any:
    return importlib.import_module("srl.base.errors").short_traceback(function)


__all__ = [*sorted((*_MODULES, *_PACKAGES)), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = getattr(importlib.import_module(_MODULES[name]), name)
        return found if isinstance(found, type) else _short_traceback(found)
    if name in _PACKAGES:
        return importlib.import_module(f"srl.{name}")
    raise AttributeError(f"module 'srl' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
