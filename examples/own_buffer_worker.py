"""Your own buffer worker: between the replay worker and the trainer, it adds a bonus to the reward of rare states.

MountainCar pays -1 for every step, so a policy that never reaches the top learns nothing. The worker counts the states
that pass (32 x 32 cells of position and speed) and adds scale / sqrt(count) to each reward (Strehl and Littman 2008).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import srl
from srl.api.control import MetricsReport
from srl.api.dataflow import TransitionBatch
from srl.api.experiment import Experiment
from srl.api.streams import StreamEnd
from srl.api.worker import IDLE, WORKED, Context, PollResult, WorkerConfig
from srl.streams.sample import SampleStream


@dataclass(frozen=True)
class BonusConfig(WorkerConfig):
    replay: SampleStream  # to the replay worker
    batches: SampleStream  # to the trainer
    scale: float = 2.0

    def build(self, context: Context) -> BonusWorker:
        return BonusWorker(self, context)

    def ends(self) -> list[StreamEnd]:  # shown by --print-config
        return [self.replay.end("source"), self.batches.end("target")]


class BonusWorker:
    def __init__(self, config: BonusConfig, context: Context) -> None:
        self._scale, self._context = config.scale, context
        self._counts = np.zeros((32, 32))
        self._relay = config.batches.relay(context, config.replay, self._add_bonus)

    def _add_bonus(self, batch: TransitionBatch, random: np.random.Generator) -> TransitionBatch:
        low, high = np.array([-1.2, -0.07]), np.array([0.6, 0.07])
        cells = np.clip((batch.next_observation - low) / (high - low) * 32, 0, 31).astype(int)  # [K, B, 2]
        cells = cells[..., 0], cells[..., 1]
        np.add.at(self._counts, cells, 1)
        bonus = self._scale / np.sqrt(self._counts[cells])
        batch.reward += bonus.astype(np.float32)  # in place, so that shapes and types stay the same
        seen = float((self._counts > 0).mean())
        self._context.report(MetricsReport("policy", {"bonus": float(bonus.mean()), "states_seen": seen}))
        return batch

    def poll(self) -> PollResult:
        return WORKED if self._relay.poll() else IDLE

    def close(self) -> None:
        self._relay.close()


def with_bonus(experiment: Experiment) -> Experiment:
    """Put the worker between the replay worker and the trainer."""
    return srl.with_buffer_workers(experiment, "bonus", BonusConfig)


if __name__ == "__main__":  # worker processes import this file to find the classes above
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()
    # The same from a command line:
    # srl train MountainCar-v0 --algo dqn --replay host --graph examples/own_buffer_worker.py:with_bonus
    options = {"steps": arguments.steps, "root": arguments.root, "verbose": True, "dqn": {"learning_starts": 500}}
    run = srl.train("MountainCar-v0", algo="dqn", replay="host", graph=with_bonus, **options)
    print({name: run.status.metrics.get(name) for name in ("bonus", "states_seen")})
