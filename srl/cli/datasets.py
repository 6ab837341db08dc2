"""The command that records data sets: `srl collect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from srl.cli.parser import flag
from srl.cli.results import PlayCommand
from srl.experiments.options.setting_texts import parse_pairs
from srl.terminal.formatting import estimate, plural


@dataclass(frozen=True)
class Collect(PlayCommand):
    """Record a data set of what a trained policy does, in Minari's format.

    Learn from it with `srl train ENV --algo bc --data DATASET` (or iql, td3bc, cql, sac, td3, dqn).

    Examples:
      srl collect latest --out data/cartpole-v0
      srl collect latest --sample --checkpoint best --steps 1000000 --out data/cheetah-v0
    """

    out: Path = flag("DATASET", Path("dataset-v0"))
    """New directory for the data set, named NAME-vNUMBER. Minari finds it by name in ~/.minari/datasets."""
    steps: int = 100_000
    """Steps to record. Episodes that have not ended by then are truncated."""
    episodes: int | None = None
    """Whole episodes to record, in place of steps."""

    def run(self) -> int:
        from srl.base.statistics import mean_of
        from srl.results.collect import collect

        done = collect(
            self.find().path,
            self.out,
            steps=self.steps,
            episodes=self.episodes,
            greedy=not self.sample,
            seed=self.seed,
            checkpoint=self.checkpoint,
            env=self.env,
            env_args=parse_pairs(self.env_arg),
            trust_code=self.trust_code,
        )
        mean = mean_of(done.returns)
        print(
            f"{done.path} written: {done.steps:,} steps of {done.checkpoint.name} in "
            f"{plural(len(done.returns), 'episode')}, return {estimate(mean.value, mean.interval)}"
        )
        return 0
