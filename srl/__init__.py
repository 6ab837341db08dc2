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
    from srl.algorithms.ppo import PPOConfig as PPOConfig
    from srl.api.experiment import Experiment as Experiment
    from srl.environments.ids import lanes_config as lanes_config
    from srl.experiments.exporting import export as export
    from srl.experiments.league import league as league
    from srl.experiments.loading import evaluate as evaluate
    from srl.experiments.loading import load as load
    from srl.experiments.options import TrainOptions as TrainOptions
    from srl.experiments.plotting import plot as plot
    from srl.experiments.recording import record as record
    from srl.experiments.rewiring import rewired as rewired
    from srl.experiments.session import RunFailed as RunFailed
    from srl.experiments.sweep import sweep as sweep
    from srl.experiments.train import Run as Run
    from srl.experiments.train import resume as resume
    from srl.experiments.train import train as train

__version__ = "0.1.0"

_PLACES = {
    "A2CConfig": "srl.algorithms.a2c",
    "Experiment": "srl.api.experiment",
    "IPPOConfig": "srl.algorithms.mappo",
    "ImpalaConfig": "srl.algorithms.impala",
    "MAPPOConfig": "srl.algorithms.mappo",
    "PPGConfig": "srl.algorithms.ppg",
    "PPOConfig": "srl.algorithms.ppo",
    "Run": "srl.experiments.train",
    "RunFailed": "srl.experiments.session",
    "TrainOptions": "srl.experiments.options",
    "evaluate": "srl.experiments.loading",
    "export": "srl.experiments.exporting",
    "league": "srl.experiments.league",
    "lanes_config": "srl.environments.ids",
    "load": "srl.experiments.loading",
    "plot": "srl.experiments.plotting",
    "record": "srl.experiments.recording",
    "resume": "srl.experiments.train",
    "rewired": "srl.experiments.rewiring",
    "sweep": "srl.experiments.sweep",
    "train": "srl.experiments.train",
}

__all__ = [*sorted(_PLACES), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'srl' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
