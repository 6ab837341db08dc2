"""Option names from other libraries (RLlib, Stable-Baselines3, CleanRL, Sample Factory, Tianshou): those that mean the
same here, and advice for those that do not."""

from __future__ import annotations

import re

_NAMES = {
    "env": "env_id environment task",
    "steps": "total_timesteps total_steps timesteps num_timesteps max_steps stop_timesteps",
    "until_return": "stop_reward",
    "callbacks": "callback",
    "root": "output_dir out_dir log_dir logdir save_dir train_dir storage_path",
    "name": "exp_name experiment experiment_name run_name",
    "env_arg": "env_kwargs",
    "actors": "num_workers num_env_runners num_rollout_workers",
    "policies": "policy_workers",
    "horizon": "n_steps rollout rollout_length rollout_fragment_length unroll_length",
    "batch": "train_batch_size",
    "trainers": "num_learners",
    "action_repeat": "frame_skip",
    "eval_every": "eval_freq",
    "eval_episodes": "n_eval_episodes num_eval_episodes",
    "learning_rate": "lr",
    "gamma": "discount",
    "gae_lambda": "lambda lambda_",
    "epochs": "n_epochs num_epochs update_epochs num_sgd_iter",
    "num_minibatches": "n_minibatches num_batches_per_epoch",
    "entropy_coefficient": "ent_coef entropy_coeff exploration_loss_coeff",
    "value_coefficient": "vf_coef vf_loss_coeff value_loss_coeff",
    "clip": "clip_coef clip_range clip_param",
    "value_clip": "clip_range_vf vf_clip_param",
    "max_grad_norm": "grad_clip",
    "target_kl": "kl_target",
    "hidden_sizes": "net_arch fcnet_hiddens",
    "memory_size": "rnn_size lstm_cell_size",
    "replay_size": "buffer_size replay_buffer_size",
    "learning_starts": "warmup_steps start_steps num_steps_sampled_before_learning_starts",
    "updates_per_decision": "utd utd_ratio update_to_data replay_ratio",
    "epsilon": "start_e exploration_initial_eps initial_epsilon",
    "epsilon_final": "end_e exploration_final_eps final_epsilon",
    "policy_delay": "policy_frequency policy_freq",
    "target_noise": "policy_noise target_policy_noise",
    "target_noise_clip": "noise_clip",
}
SAME = {name: option for option, names in _NAMES.items() for name in names.split()}
"""Name in another library -> name of an option, a field of the algorithm's config, or a command argument."""

_TEXTS = {
    "algorithm_name": "set `algo`",
    "verbose": "the command line always shows the live view; in Python, pass verbose=False to srl.train for silence",
    "seeds num_seeds": "`srl sweep ENV --seeds 5` (in Python: srl.sweep) trains with several seeds",
    "target_update_interval target_network_frequency target_network_update_freq": "`target_update` counts gradient "
    "steps, not decisions: multiply by `updates_per_decision`",
    "save_path": "`root` is the directory of all runs, `name` the run's directory in it",
    "policy": "the observation determines the network; set `hidden_sizes`, or `network` to a function that builds it",
    "num_envs n_envs num_environments": "`lanes` counts the copies in one lane group; the run has "
    "`lanes` x `ring` x `actors` copies",
    "num_envs_per_worker num_envs_per_env_runner": "`lanes` counts the copies in one lane group; an actor has "
    "`lanes` x `ring` copies",
    "batch_size minibatch_size sgd_minibatch_size mini_batch_size": "`batch` counts decisions per update, and "
    "`num_minibatches` the parts that it is split into",
    "train_freq train_frequency gradient_steps": "`updates_per_decision` is the number of gradient steps per decision "
    "of algorithms that learn from replay",
    "samples_per_insert": "`updates_per_decision` is the number of gradient steps per decision; samples per insert are "
    "this times `batch_size`",
    "num_steps": "`steps` is the length of the run, `horizon` the length of a rollout",
    "train_for_env_steps": "`steps` counts decisions, which are fewer than frames where an action is repeated",
    "num_gpus num_gpus_per_learner": "set `device` to cuda; on a cluster, `resources` says which workers get a GPU",
    "gpu cuda": "set `device` to cuda or cpu",
    "use_rnn use_lstm recurrent": "set `memory` to gru or lstm",
    "save_freq save_every checkpoint_freq checkpoint_frequency": "`checkpoint_seconds` is the time between "
    "checkpoints; `keep_every` keeps one every N steps",
    "eval_interval evaluation_interval": "`eval_every` counts steps",
    "track wandb use_wandb": "set `sinks` to wandb",
    "tensorboard_log": "TensorBoard files are in the run's directory; `root` is the directory of all runs",
    "anneal_lr lr_schedule": "set `learning_rate_schedule` to linear, cosine or constant",
    "norm_adv normalize_advantages": "set `normalize_advantage` to batch, minibatch or none",
    "clip_vloss": "set `value_clip` to a number",
    "policy_kwargs": "set `hidden_sizes`, `activation`, or `network` to the name of a function that builds your own",
    "async_rl": "set `max_lag`: 0 is synchronous, 1 or more asynchronous",
    "restart_behavior load_checkpoint": "`srl resume RUN` continues a run",
    "framework": "SRL always uses PyTorch",
    "num_agents": "the environment defines its agents; `roles` says which of them share a policy",
    "her her_ratio": "hindsight is for algorithms that learn from replay: set `algo` to sac, td3, ddpg or dqn",
    "goal_selection_strategy n_sampled_goal": "set `her` to future or final, and `her_ratio`",
    "frame_stack framestack": "frames are stacked by the environment: `env_arg` frame_stack=4",
}
ADVICE = {name: text for names, text in _TEXTS.items() for name in names.split()}
"""Name in another library -> advice for an error message, with the closest options in backquotes. The advice is for
algorithms that have no option of that name."""


def advice(name: str, *, flags: bool) -> str:
    """Return the error message for an option name from another library; empty for other names. With `flags`, options
    are written as on the command line."""
    text = ADVICE.get(name) or (f"set `{SAME[name]}`" if name in SAME else "")
    text = re.sub("`([a-z_]+)`", lambda found: as_flag(found[1]), text) if flags else text
    return text and f"no option {as_flag(name) if flags else repr(name)}: {text}"


def as_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def set_twice(first: str, second: str) -> ValueError:
    return ValueError(f"{first} and {second} set the same option; use one of them")
