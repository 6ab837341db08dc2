"""SRL, ReaLly Scalable RL: the public names. Everything is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from srl.algorithms.a2c import A2CConfig as A2CConfig
    from srl.algorithms.impala import ImpalaConfig as ImpalaConfig
    from srl.algorithms.mappo import IPPOConfig as IPPOConfig
    from srl.algorithms.mappo import MAPPOConfig as MAPPOConfig
    from srl.algorithms.ppg import PPGConfig as PPGConfig
    from srl.algorithms.ppo.config import PPOConfig as PPOConfig
    from srl.api.experiment import Experiment as Experiment
    from srl.environments.registry import lanes_config as lanes_config
    from srl.experiments.graph.customization import rewired as rewired
    from srl.experiments.options.train_options import TrainOptions as TrainOptions
    from srl.experiments.session.launch import resume as resume
    from srl.experiments.session.launch import train as train
    from srl.experiments.session.session import Run as Run
    from srl.experiments.session.session import RunFailed as RunFailed
    from srl.experiments.session.sweep import sweep as sweep
    from srl.results.evaluate import evaluate as evaluate
    from srl.results.export import export as export
    from srl.results.league import league as league
    from srl.results.load import load as load
    from srl.results.plot import plot as plot
    from srl.results.record import record as record

__version__ = "0.1.0"

_PLACES = {
    "A2CConfig": "srl.algorithms.a2c",
    "Experiment": "srl.api.experiment",
    "IPPOConfig": "srl.algorithms.mappo",
    "ImpalaConfig": "srl.algorithms.impala",
    "MAPPOConfig": "srl.algorithms.mappo",
    "PPGConfig": "srl.algorithms.ppg",
    "PPOConfig": "srl.algorithms.ppo.config",
    "Run": "srl.experiments.session.session",
    "RunFailed": "srl.experiments.session.session",
    "TrainOptions": "srl.experiments.options.train_options",
    "evaluate": "srl.results.evaluate",
    "export": "srl.results.export",
    "league": "srl.results.league",
    "lanes_config": "srl.environments.registry",
    "load": "srl.results.load",
    "plot": "srl.results.plot",
    "record": "srl.results.record",
    "resume": "srl.experiments.session.launch",
    "rewired": "srl.experiments.graph.customization",
    "sweep": "srl.experiments.session.sweep",
    "train": "srl.experiments.session.launch",
}

__all__ = [*sorted(_PLACES), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'srl' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
