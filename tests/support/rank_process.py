"""Process with one of several data-parallel trainers. It reads its work from stdin and writes its result to stdout."""

from __future__ import annotations

import pickle
import sys

import torch

from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Space
from srl.api.trainer import TrainerGroup, Trajectory


def run(
    rank: int, rendezvous: str, config: PPOConfig, observation: Space, action: Space, batches: list[Trajectory]
) -> None:
    torch.set_num_threads(1)
    trainer = config.build_trainer(observation, action, seed=rank)  # other weights: joining must make them equal
    trainer.join(TrainerGroup(rank, 2, rendezvous, timeout=60.0))
    assert trainer.lowest(5 + rank) == 5
    skipped = [trainer.step(batch, 0.0).skipped for batch in batches]
    pickle.dump((skipped, dict(trainer.state())), sys.stdout.buffer)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run(*pickle.load(sys.stdin.buffer))
