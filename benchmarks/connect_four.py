"""Score of a policy in Connect Four against UCT with random games, in both seats.

    python benchmarks/connect_four.py RUN --games 200 --simulations 32 --rollouts 1000

Games begin with one or two random moves, so that they differ; players are greedy. A win is 1 point, a draw 0.5.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import srl
from srl.results.league import match
from srl.testing.uct import CONNECT_FOUR, UCTPolicy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="runs or checkpoints")
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--simulations", type=int)
    parser.add_argument("--rollouts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    environment = srl.lanes_config("game:connect-four", openings=1.0, opening_moves=2).with_states()
    for run in arguments.runs:
        trained = srl.load(run, simulations=arguments.simulations)
        opponent = UCTPolicy(CONNECT_FOUR, arguments.rollouts, seed=arguments.seed)
        began = time.time()
        points, _ = match(
            environment.with_separate_seats(), trained.policy, opponent, arguments.games, True, arguments.seed
        )
        score, error = float(np.mean(points)), float(np.std(points) / len(points) ** 0.5)
        found = {"run": run, "steps": trained.metadata["steps"], "games": len(points), "score": round(score, 3)}
        print(json.dumps({**found, "error": round(error, 3), "seconds": round(time.time() - began, 1)}), flush=True)


if __name__ == "__main__":
    main()
