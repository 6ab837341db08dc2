"""Option names of other libraries: those that mean the same here, and advice for those that do not."""

from __future__ import annotations

import re

SAME = {
    # RLlib, Stable-Baselines3, CleanRL, Sample Factory, Tianshou: the run
    "env_id": "env",
    "environment": "env",
    "task": "env",
    "total_timesteps": "steps",
    "total_steps": "steps",
    "timesteps": "steps",
    "num_timesteps": "steps",
    "max_steps": "steps",
    "stop_timesteps": "steps",
    "stop_reward": "until_return",
    "output_dir": "root",
    "out_dir": "root",
    "log_dir": "root",
    "logdir": "root",
    "save_dir": "root",
    "train_dir": "root",
    "storage_path": "root",
    "exp_name": "name",
    "experiment": "name",
    "experiment_name": "name",
    "run_name": "name",
    "env_kwargs": "env_arg",
    # Workers
    "policy_workers": "policies",
    "num_workers": "actors",
    "num_env_runners": "actors",
    "num_rollout_workers": "actors",
    "n_steps": "horizon",
    "rollout": "horizon",
    "rollout_length": "horizon",
    "rollout_fragment_length": "horizon",
    "unroll_length": "horizon",
    "train_batch_size": "batch",
    "num_learners": "trainers",
    "frame_skip": "action_repeat",
    # Evaluation
    "eval_freq": "eval_every",
    "n_eval_episodes": "eval_episodes",
    "num_eval_episodes": "eval_episodes",
    # Learning
    "lr": "learning_rate",
    "discount": "gamma",
    "lambda": "gae_lambda",
    "lambda_": "gae_lambda",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "update_epochs": "epochs",
    "num_sgd_iter": "epochs",
    "n_minibatches": "num_minibatches",
    "num_batches_per_epoch": "num_minibatches",
    "ent_coef": "entropy_coefficient",
    "entropy_coeff": "entropy_coefficient",
    "exploration_loss_coeff": "entropy_coefficient",
    "vf_coef": "value_coefficient",
    "vf_loss_coeff": "value_coefficient",
    "value_loss_coeff": "value_coefficient",
    "clip_coef": "clip",
    "clip_range": "clip",
    "clip_param": "clip",
    "clip_range_vf": "value_clip",
    "vf_clip_param": "value_clip",
    "grad_clip": "max_grad_norm",
    "kl_target": "target_kl",
    "net_arch": "hidden_sizes",
    "fcnet_hiddens": "hidden_sizes",
    "rnn_size": "memory_size",
    "lstm_cell_size": "memory_size",
}
"""Name elsewhere -> name of an option, of a field of the algorithm's config, or of an argument of the command."""

_COPIES = "`lanes` counts the copies in one lane group; the run has `lanes` x `ring` x `actors` copies"
_COPIES_PER_ACTOR = "`lanes` counts the copies in one lane group; an actor has `lanes` x `ring` copies"
_MINIBATCH = "`batch` counts decisions per update, and `num_minibatches` the parts that it is split into"
_MEMORY = "set `memory` to gru or lstm"
_CHECKPOINTS = "`checkpoint_seconds` is the time between checkpoints; `keep_every` keeps one every N steps"
_ADVANTAGES = "set `normalize_advantage` to batch, minibatch or none"
_STACK = "frames are stacked by the environment: `env_arg` frame_stack=4"
_RESUME = "`srl resume RUN` continues a run"
_WANDB = "set `sinks` to wandb"
ADVICE = {
    "algorithm_name": "set `algo`",
    "verbose": "the command line always shows the live view; in Python, `srl.train(..., verbose=True)` does",
    "save_path": "`root` is the directory of all runs, `name` the run's directory in it",
    "policy": "the observation decides the network; set `hidden_sizes`, or `network` to a function that builds it",
    "num_envs": _COPIES,
    "n_envs": _COPIES,
    "num_environments": _COPIES,
    "num_envs_per_worker": _COPIES_PER_ACTOR,
    "num_envs_per_env_runner": _COPIES_PER_ACTOR,
    "batch_size": _MINIBATCH,
    "minibatch_size": _MINIBATCH,
    "sgd_minibatch_size": _MINIBATCH,
    "mini_batch_size": _MINIBATCH,
    "num_steps": "`steps` is the length of the run, `horizon` the length of a rollout",
    "train_for_env_steps": "`steps` counts decisions, which are fewer than frames where an action is repeated",
    "num_gpus": "set `device` to cuda; on a cluster, `resources` says which workers get a GPU",
    "num_gpus_per_learner": "set `device` to cuda; on a cluster, `resources` says which workers get a GPU",
    "gpu": "set `device` to cuda",
    "cuda": "set `device` to cuda or cpu",
    "use_rnn": _MEMORY,
    "use_lstm": _MEMORY,
    "recurrent": _MEMORY,
    "save_freq": _CHECKPOINTS,
    "save_every": _CHECKPOINTS,
    "checkpoint_freq": _CHECKPOINTS,
    "checkpoint_frequency": _CHECKPOINTS,
    "eval_interval": "`eval_every` counts steps",
    "evaluation_interval": "`eval_every` counts steps",
    "track": _WANDB,
    "wandb": _WANDB,
    "use_wandb": _WANDB,
    "tensorboard_log": "TensorBoard files are in the run's directory; `root` is the directory of all runs",
    "anneal_lr": "set `learning_rate_schedule` to linear or constant",
    "lr_schedule": "set `learning_rate_schedule` to linear, cosine or constant",
    "norm_adv": _ADVANTAGES,
    "normalize_advantages": _ADVANTAGES,
    "clip_vloss": "set `value_clip` to a number",
    "policy_kwargs": "set `hidden_sizes`, `activation`, or `network` to the name of a function that builds your own",
    "async_rl": "set `max_lag`: 0 is synchronous, 1 or more asynchronous",
    "restart_behavior": _RESUME,
    "load_checkpoint": _RESUME,
    "framework": "SRL always uses PyTorch",
    "num_agents": "the environment defines its agents; `roles` says which of them share a policy",
    "frame_stack": _STACK,
    "framestack": _STACK,
}
"""Name elsewhere -> the options that come closest, for an error message. Options are written in backquotes."""


def advice(name: str, *, flags: bool) -> str:
    """Return the message for an option name of another library that SRL does not have here; empty for other names. With
    `flags`, options are written as on the command line."""
    text = ADVICE.get(name) or (f"set `{SAME[name]}`" if name in SAME else "")
    text = re.sub("`([a-z_]+)`", lambda found: as_flag(found[1]), text) if flags else text
    return text and f"no option {as_flag(name) if flags else repr(name)}: {text}"


def as_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def set_twice(first: str, second: str) -> ValueError:
    return ValueError(f"{first} and {second} set the same option; use one of them")
