"""Evaluation during and after training, and a learning curve, as in a notebook."""

from __future__ import annotations

import argparse
from pathlib import Path

import srl

if __name__ == "__main__":  # worker processes import this file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()

    run = srl.train("CartPole-v1", steps=arguments.steps, root=arguments.root, eval_every=arguments.steps // 10)
    result = srl.evaluate(run.path, episodes=16, checkpoint="best")
    print(f"return {result.mean:.1f} ± {result.interval:.1f} with {result.checkpoint.name}")

    figure = srl.plot(run.path, out=Path(run.path) / "curve.png")  # a notebook shows the figure
    print(f"curve of {len(figure.axes[0].lines[0].get_xdata())} points in {run.path}/curve.png")

    # srl.sweep("CartPole-v1", 5) trains with five seeds; srl.plot on its path draws their mean and interval.
    # srl.record(run.path, "video.gif") records the policy; srl.export(run.path, "policy.onnx") exports it.
