"""The Python door from end to end: train, look at the result, use the policy, play whole episodes."""

from __future__ import annotations

import argparse

import gymnasium

import srl

if __name__ == "__main__":  # worker processes import this file
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()

    # Options are those of `srl train`; an algorithm's own come as a dictionary. `verbose=True` draws the live view.
    run = srl.train(
        "CartPole-v1", steps=arguments.steps, seed=1, ppo={"learning_rate": 1e-3, "gamma": 0.98}, root=arguments.root
    )
    print(f"{run.name}: {run.state}, {run.status.steps:,} steps, return {run.status.return_mean}, files in {run.path}")

    # A policy needs nothing of its run but the directory. One observation in, one action out.
    policy = srl.load(run.path)
    environment = gymnasium.make("CartPole-v1")
    observation, _ = environment.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = environment.step(policy.act(observation))
        total, ended = total + float(reward), terminated or truncated
    print(f"one episode, likeliest actions: {total:.0f}")

    # A batch of observations in, a batch of actions out; drawn as in training.
    vector = gymnasium.make_vec("CartPole-v1", num_envs=8)
    observations, _ = vector.reset(seed=0)
    print("eight actions, drawn:", policy.act(observations, greedy=False))

    result = srl.evaluate(run.path, episodes=32)
    print(f"32 episodes: {result.mean:.1f} ± {result.interval:.1f}")
