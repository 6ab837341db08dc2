"""Recipe and setting: the row types of the tables in this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A value for one option, with its reason."""

    option: str
    """Name of an option: `lanes`, `algo.gamma` for one of the algorithm, `env.episodic_life` for one of the environment
    (skipped where the environment has no such option)."""
    value: Any
    why: str

    @property
    def owner(self) -> str:
        """`algo`, `env`, or empty for an option of the run."""
        return self.option.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.option.rpartition(".")[2]


@dataclass(frozen=True)
class Recipe:
    """Options for a family of environments."""

    name: str
    about: str
    patterns: tuple[str, ...] = ()
    """Patterns for ids or entry points; the first recipe that matches is used. Without patterns, a recipe is chosen by
    name or by the environment's spaces."""
    task: tuple[Setting, ...] = ()
    """Settings for every algorithm; those of the algorithm's own options (`algo.`) are for on-policy algorithms."""
    ppo: tuple[Setting, ...] = ()
    """Settings for PPO and its multi-agent variants only; other algorithms need other sizes and learning rates."""
    dqn: tuple[Setting, ...] = ()  # settings for DQN; its extensions have their own defaults
    apex: tuple[Setting, ...] = ()
    r2d2: tuple[Setting, ...] = ()
    sac: tuple[Setting, ...] = ()
    td3: tuple[Setting, ...] = ()  # settings for TD3 and DDPG
    qmix: tuple[Setting, ...] = ()  # settings for VDN and QMIX
    alphazero: tuple[Setting, ...] = ()
    muzero: tuple[Setting, ...] = ()
    cores: int = 0
    """Number of cores that the batch is meant for. Machines with fewer use a smaller batch, unless `--scale` is given.
    0: the same batch everywhere."""

    def scopes(self) -> list[tuple[str, tuple[Setting, ...]]]:
        """Return the settings, each with a text that says which algorithms they are for."""
        everywhere = tuple(setting for setting in self.task if setting.owner != "algo")
        on_policy = tuple(setting for setting in self.task if setting.owner == "algo")
        found = (
            ("every algorithm", everywhere),
            ("on-policy algorithms", on_policy),
            ("ppo, ippo and mappo", self.ppo),
            ("dqn", self.dqn),
            ("apex", self.apex),
            ("r2d2", self.r2d2),
            ("sac", self.sac),
            ("td3 and ddpg", self.td3),
            ("vdn and qmix", self.qmix),
            ("alphazero", self.alphazero),
            ("muzero", self.muzero),
        )
        return [(scope, settings) for scope, settings in found if settings]
