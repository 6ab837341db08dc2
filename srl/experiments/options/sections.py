"""Options of `srl train`, one class per topic. The command-line help is generated from the texts here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from srl.api.lanes import LONGEST_EPISODE, named_texts
from srl.base.config import texts_in
from srl.experiments.options.setting_texts import parse_callback, parse_pairs, parse_role

AUTO, NONE = "auto", "none"
"""Special recipe names: the recipe that fits the environment, and no recipe."""
CLUSTERS = ("hosts", "ray", "slurm")
"""Schedulers whose workers run on several machines."""
PLAIN_SLURM = (
    *("account", "begin", "constraint", "deadline", "exclude", "exclusive", "gres", "mem", "nice", "nodelist", "qos"),
    *("reservation", "time"),
)
"""Options of `sbatch` that only choose resources."""
CALLBACKS = ("early-stopping", "curriculum", "option-schedule", "webhook")
"""Callbacks of SRL."""
CONNECTING = ("webhook",)
PLAIN_TEXTS = ("option", "metric", "fact")
"""Options of callbacks that are names of options or statistics."""
OWN_SINKS = ("tensorboard",)
"""Sinks that write only to the run directory."""
DEVICE = re.compile(r"[a-z]+:[0-9]+")
GOAL = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=)\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*")
RESERVED = {
    "return", "length", "episodes", "update", "step", "steps", "time", "elapsed", "lane", "row", "seed", "policy",
    "actor", "host", "kind",
}  # fmt: skip
"""Names in the record of a run that statistics of the environment cannot have."""
_SAME_ENVIRONMENT = "the run continues with its environment; start a new run for another one"
ONLY_AT_START = {
    "recipe": "the run keeps the values of its recipe; set the options one by one",
    "scale": "it multiplies the batch of a recipe; set batch instead",
    "env_args": _SAME_ENVIRONMENT,
    "action_repeat": _SAME_ENVIRONMENT,
    "image_size": _SAME_ENVIRONMENT,
    "grayscale": _SAME_ENVIRONMENT,
    "previous_step": _SAME_ENVIRONMENT,
    "team_reward": _SAME_ENVIRONMENT,
    "log_info": _SAME_ENVIRONMENT,
    "data": "a run counts either gradient steps on its data or decisions; start a new run for other data",
}
"""Options that a resumed run rejects because they would have no effect -> reason."""


def _check_at_least_one(section: object, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, found {value}")


def _is_plain(callback: str) -> bool:
    """Return whether a callback is one of SRL that connects to nothing, and whose options are numbers and names."""
    name, options = parse_callback(callback)
    others = {option: value for option, value in options.items() if option not in PLAIN_TEXTS}
    return name in CALLBACKS and name not in CONNECTING and not any(texts_in(others))


def parse_goal(text: str) -> tuple[str, str, float]:
    """Return name, sign and value of a goal such as `return>=475`. Raises ValueError."""
    match = GOAL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"until: expected NAME>=VALUE or NAME<=VALUE, such as 'return>=475' (a shell needs the quotes); "
            f"found {text!r}"
        )
    return match[1], match[2], float(match[3])


@dataclass(frozen=True)
class RunOptions:
    """Training: length, seed, recipe, and destinations for metrics."""

    steps: int = 1_000_000
    """Agent decisions to train on. Several policies share them in proportion to their numbers of agents; the run ends
    when each policy has its share. With `data`: gradient steps."""
    data: tuple[str, ...] = ()
    """Data sets to learn from, in place of playing: paths, or names in Minari's directory. The run has no actors; it
    counts gradient steps, and evaluates 20 times by default (`eval_every`)."""
    until_return: float | None = None
    """Return of the last 100 episodes that ends the run."""
    until: tuple[str, ...] = ()
    """Goals that end the run early: `NAME>=VALUE` or `NAME<=VALUE`. All must be reached, by the mean over the last 100
    episodes. NAME is `return`, `length` or a statistic of the environment; with several policies
    `POLICY/NAME`."""
    seed: int = 0
    """Seed for environments, networks and exploration."""
    recipe: str = AUTO
    """Tuned values for the options that you do not set. `auto`: the recipe for the environment's family, or one for its
    spaces; `none`: the defaults shown here; or a recipe by name (`srl help recipes`)."""
    scale: float | None = None
    """Multiplier for the recipe's batch. Default: 1; less on machines too small for a cluster-sized recipe such as
    hide-and-seek."""
    action_repeat: int = 1
    """Environment steps per decision; their rewards are summed. For plain Gymnasium environments where random actions
    that change every step cancel out, so that exploration needs longer actions. `steps`, `horizon` and `gamma` count
    decisions."""
    image_size: int | None = None
    """Side length in pixels to which the images of a plain Gymnasium environment are resized. Default: their own."""
    grayscale: bool = False
    """Remove the colors of the images of a plain Gymnasium environment."""
    previous_step: bool = False
    """Add the previous action and reward to observations, as the keys `previous_action` and `previous_reward`. For
    policies with a memory, which can then find out what their actions do (as R2D2 does in its paper)."""
    sinks: tuple[str, ...] = ("tensorboard",)
    """Further records of metrics: `tensorboard`, `wandb`, `mlflow`, or your own as `package.module:function`. W&B and
    MLflow are configured by their own environment variables."""
    log_info: tuple[str, ...] = ()
    """Scalars in the environment's `info` to record as statistics of episodes, with their values at the last step.
    `is_success` and the entries of Gymnasium's RecordEpisodeStatistics are recorded anyway."""
    callbacks: tuple[str, ...] = field(default=(), metadata={"repeated": True})
    """Callback by name, or your own class as `path/file.py:Class`. Names are `early-stopping`, `curriculum`,
    `option-schedule` and `webhook`; classes can also be given as `package.module:Class`. Options follow
    after commas: `early-stopping,patience=500000`. The flag can be repeated."""
    callback_errors: Literal["stop", "warn"] = "stop"
    """What an error in a callback does: it ends the run, or is only reported."""
    graph: str = ""
    """Function that changes the worker graph, as `package.module:function` or `path/file.py:function`. It receives
    the standard Experiment and returns the one to run."""
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment."""

    def named_code(self) -> tuple[str, ...]:
        """Return what a config in an untrusted file must not have: see :meth:`srl.api.lanes.LanesConfig.named_code`."""
        sinks = [sink for sink in self.sinks if sink not in OWN_SINKS]
        callbacks = [text for text in self.callbacks if not _is_plain(text)]
        data = [f"data set {name}" for name in self.data]
        return (*sinks, *callbacks, *([self.graph] if self.graph else []), *named_texts(self.env_args), *data)

    def __post_init__(self) -> None:
        _check_at_least_one(self, "steps", "action_repeat", "image_size")
        if self.scale is not None and not self.scale > 0.0:
            raise ValueError(f"scale must be positive, found {self.scale}")
        for text in self.until:
            parse_goal(text)
        for name in RESERVED & set(self.log_info):
            raise ValueError(f"log_info: {name!r} has another meaning in the record of a run; rename it in the infos")


@dataclass(frozen=True)
class WorkerOptions:
    """Workers: where they run, how many there are, and how much data they exchange."""

    scheduler: Literal["processes", "inline", "hosts", "ray", "slurm"] = "processes"
    """Where workers run. `processes`: on all cores of this machine; `inline`: all workers in one thread, bit-for-bit
    reproducible; `hosts`: also on machines where `srl agent` was started; `ray`: on the nodes of a Ray cluster;
    `slurm`: in a Slurm job."""
    inference: Literal["auto", "inline", "host", "remote"] = "auto"
    """Where inference runs. `inline`: inside each actor, with any scheduler; `host`: in policy workers, over shared
    memory; `remote`: in policy workers, over TCP; `auto`: inline without an accelerator, else host."""
    actors: int | None = None
    """Number of actor processes. Default: by cores and time per step."""
    lanes: int | None = None
    """Environment copies per lane group. Default: by recipe, algorithm or observation."""
    ring: int | None = None
    """Lane groups per actor: while one waits for decisions, the others step. Default: 1 with inline inference, else
    2."""
    horizon: int | None = None
    """Steps per block, the rollout that actors send to the trainer. Default: as for `lanes`."""
    batch: int | None = None
    """Decisions per update: a multiple of lanes x agents x horizon x trainers. With `data`: gradient steps per
    update, by default 100, or 10 with images. Default: one block per lane group of one actor; of all actors if you set
    `actors`. The number of cores never changes it."""
    trainers: int = 1
    """Number of data-parallel trainers; each takes its share of the batch."""
    policies: int = 1
    """Number of policy workers: processes that run inference for the actors, unless inference is inline. Also
    --policy-workers. (--roles assigns agents to policies.)"""
    in_flight: int = 1
    """Batches that a policy worker processes at a time; use more than 1 for a busy or remote accelerator."""
    replay: Literal["inline", "host", "remote"] = "inline"
    """Where the replay of off-policy algorithms is. `inline`: inside each trainer; `host`: in replay workers, connected
    over Unix sockets; `remote`: in replay workers, over TCP."""
    replay_workers: int = 1
    """Number of replay workers, unless the replay is inline; each keeps its share of the decisions."""
    buffer_workers: bool = False
    """Change drawn batches (`random_shift`) in workers of their own, one for each replay worker, not in the
    trainers."""
    reanalyze_workers: int = 0
    """Number of reanalyze workers: processes that search remembered decisions again with the newest parameters, before
    their targets reach `--algo.max-target-age`. They need replay workers. 0: only targets that are too old for a batch
    are searched again, where it is drawn."""
    max_lag: int = 1
    """Versions that the acting policy may lag behind the update that learns from its data. 0: exactly synchronous."""
    replay_dir: str = ""
    """Directory for replay that does not fit into memory: it is kept in files there, which have no names and end with
    the run. Choose a fast local disk; what fits is still cached in memory. Default: replay is in memory."""
    hang_timeout: float = 60.0
    """Seconds in one environment step or one update after which a worker counts as stuck."""
    max_env_failures: int = 10
    """Environment failures per minute and actor above which the run ends."""

    def named_code(self) -> tuple[str, ...]:
        """Return the directory for replay, which would be written to."""
        return (f"directory {self.replay_dir}",) if self.replay_dir else ()

    def __post_init__(self) -> None:
        _check_at_least_one(self, "trainers", "policies", "in_flight", "actors", "lanes", "ring", "horizon", "batch")
        _check_at_least_one(self, "replay_workers")
        if self.max_lag < 0:
            raise ValueError(f"max_lag must be 0 (synchronous) or more, found {self.max_lag}")
        if self.scheduler == "inline" and self.trainers > 1:
            raise ValueError("several trainers need a process each: use --scheduler processes")
        if self.scheduler == "inline" and self.inference == "remote":
            raise ValueError("remote inference needs processes: use --scheduler processes")
        if self.scheduler == "inline" and self.replay == "remote":
            raise ValueError("remote replay needs processes: use --scheduler processes, or --replay host")
        if self.replay == "inline" and self.replay_workers > 1:
            raise ValueError(
                f"an inline replay has no workers: use --replay host or remote with --replay-workers "
                f"{self.replay_workers}"
            )
        if self.reanalyze_workers < 0:
            raise ValueError(f"reanalyze_workers must be 0 or more, found {self.reanalyze_workers}")
        if self.replay == "inline" and self.reanalyze_workers:
            raise ValueError("reanalyze workers get rows from replay workers: use --replay host or remote with them")
        if self.replay == "inline" and self.buffer_workers:
            raise ValueError("buffer workers change what replay workers draw: use --replay host or remote with them")


@dataclass(frozen=True)
class ClusterOptions:
    """Runs over several machines: `--scheduler hosts`, `ray` or `slurm`."""

    RETIRED: ClassVar[tuple[str, ...]] = ("secret_file",)  # fields of older versions, ignored in saved runs

    hosts: int = 1
    """Number of machines to wait for before the run starts, including this one with `hosts`. More may join later."""
    hosts_timeout: float = 60.0
    """Seconds to wait for these machines."""
    bind: str = "127.0.0.1"
    """Address of this machine at which agents join, as HOST or HOST:PORT."""
    join_file: str = ""
    """File that other machines need to join with `srl agent FILE`; written when the run starts, and removed when it
    ends. Default: `join` in the run directory."""
    encrypt: bool = False
    """Encrypt the traffic between hosts, which is always authenticated. Connections between trainers (gloo, NCCL) are
    neither encrypted nor authenticated."""
    private_network: bool = False
    """Only the run's hosts can access the network between them: do not warn about connections that cannot be protected
    (gloo, NCCL, Ray without a token)."""
    headless: float = 600.0
    """With `hosts`: seconds for which agents and workers continue after this command is killed, for `srl attach`."""
    address: str = ""
    """Address of the Ray head node as HOST:PORT. Default: the cluster that this machine belongs to."""
    partition: str = ""
    """Slurm partition. Default: the cluster's default partition."""
    slurm_options: tuple[str, ...] = ()
    """Additional options for `sbatch`, without dashes: time=4:00:00 account=me."""
    resources: tuple[str, ...] = ()
    """Resources of each worker of a group, as GROUP=NAME:AMOUNT,..., for example trainers=gpu:1,cpu:4
    actors=cpu:2,memory_mb:500,node:fast. GROUP may be a pattern ('trainers*'). Default: one CPU, and with
    `device=cuda` one GPU per trainer, which policy workers share."""

    def named_code(self) -> tuple[str, ...]:
        """Return the address of a Ray cluster, whose answers Ray unpickles, a join file, which would be written and
        removed, and the options of a Slurm job that could run something else, such as `export`."""
        options = [option for option in self.slurm_options if option.lstrip("-").partition("=")[0] not in PLAIN_SLURM]
        named = {"Ray cluster": self.address, "join file": self.join_file}
        return (
            *(f"{what} {name}" for what, name in named.items() if name),
            *(f"Slurm option {one}" for one in options),
        )

    def __post_init__(self) -> None:
        _check_at_least_one(self, "hosts")
        for name in ("partition", "slurm_options", "resources"):
            for text in texts_in(getattr(self, name)):
                if " " in text or not text.isprintable():
                    raise ValueError(f"{name} cannot contain blanks or control characters; found {text!r}")


@dataclass(frozen=True)
class AgentOptions:
    """Environments with several agents: which agents share a policy, and self-play."""

    roles: tuple[str, ...] = ()
    """Agents that share a policy, as PATTERN=POLICY, e.g. 'hider*=hiders' 'seeker*=seekers'. Settings of a role follow
    after commas: 'seeker*=seekers,horizon=40', any option of its algorithm ('gamma=0.9'), another algorithm
    ('algo=a2c'), or a policy that does not learn ('frozen=RUN' or 'frozen=RUN@CHECKPOINT'). Default: one policy for all
    agents if their spaces are equal, else one for each."""
    team_reward: bool = False
    """Give each agent the mean reward of all agents that share its policy."""
    self_play: Literal["none", "uniform", "prioritized"] = "none"
    """Opponents in self-play, where one policy plays all sides: its newest version and past ones, drawn with equal
    probability (`uniform`) or more often if they are hard to beat (`prioritized`). In each copy, one agent learns.
    `none`: no self-play, all agents learn."""
    self_play_share: float = 0.5
    """Fraction of games against past versions, in [0, 1]."""
    self_play_every: int = 20
    """Updates between versions kept as opponents."""
    self_play_versions: int = 12
    """Number of past versions to keep as opponents, spread over the run, from 1 to 16."""

    def named_code(self) -> tuple[str, ...]:
        """Return the roles whose settings name an algorithm or network outside of SRL: an object of another module is
        always `package.module:name` or `path/file.py:name`."""
        found = {role: texts_in(parse_pairs(parse_role(role)[2])) for role in self.roles}
        return tuple(
            role for role, texts in found.items() if any(":" in text and not DEVICE.fullmatch(text) for text in texts)
        )

    def __post_init__(self) -> None:
        if not 0.0 <= self.self_play_share <= 1.0:
            raise ValueError(f"self_play_share must be in [0, 1], found {self.self_play_share}")
        _check_at_least_one(self, "self_play_every", "self_play_versions")
        if self.self_play_versions > 16:
            raise ValueError(f"self_play_versions must be 1 to 16, found {self.self_play_versions}")
        if self.self_play != "none" and self.roles:
            raise ValueError("self-play has one policy for all agents; leave --roles out")


@dataclass(frozen=True)
class EvaluationOptions:
    """Evaluation in the background while the run trains."""

    eval_every: int = 0
    """Steps between evaluations; 0: none. An evaluator plays whole episodes with the newest parameters, and the
    best checkpoint is kept (`--checkpoint best`)."""
    eval_episodes: int = 10
    """Number of episodes per evaluation."""
    eval_share: float = 0.03
    """Fraction of one core that evaluation may use, in (0, 1]. With the scheduler `inline`, each evaluation is done at
    once."""
    eval_greedy: bool = True
    """Take the most likely actions instead of sampling them as in training."""
    eval_max_steps: int = LONGEST_EPISODE
    """Steps after which an episode is truncated, for environments whose episodes may never end."""

    def __post_init__(self) -> None:
        _check_at_least_one(self, "eval_episodes", "eval_max_steps")
        if self.eval_every < 0:
            raise ValueError(f"eval_every must be 0 (no evaluation) or more, found {self.eval_every}")
        if not 0.0 < self.eval_share <= 1.0:
            raise ValueError(f"eval_share must be in (0, 1], found {self.eval_share}")


@dataclass(frozen=True)
class CheckpointOptions:
    """Checkpoints, journal and logs of a run."""

    checkpoint_seconds: float = 30.0
    """Seconds between checkpoints."""
    keep_last: int = 3
    """Number of newest checkpoints to keep. The best one, by evaluation or else by mean return, is also kept."""
    keep_every: int = 0
    """Also keep one checkpoint every N steps; 0: none. In self-play the default keeps one per opponent, so that a
    resumed run finds them."""
    best: str = "return"
    """Statistic of episodes by which the best checkpoint is chosen: `return`, or one that the environment reports, such
    as `is_success`. Prefix `-` for one to minimize."""
    record_every: int = 1
    """Updates per row of metrics.jsonl, for runs with hundreds of updates per second. A row of several updates has
    means of their metrics, with minima and maxima beside them."""
    episodes: bool = True
    """Keep every episode in episodes.bin, about 30 bytes each (`srl episodes`)."""
    journal: bool = False
    """Record the inputs and result of every update, for `srl chaos` to check."""
    save_replay: bool = False
    """Save the replay with each checkpoint, so that a resumed run continues with it instead of collecting new
    decisions first. New blocks are written once, to `replay/` in the run directory, which grows to the size of the
    replay; priorities, 9 bytes per decision, are written each time. On a cluster, the hosts that keep replay need the
    run directory."""
    record_streams: bool = False
    """Record the batches that reach the trainers, in `streams/` of the run directory, for `srl replay`: it makes the
    same updates again, bit for bit, on another machine. A trainer's host must have the run directory."""
    record_mb: int = 1000
    """Maximum size of what each trainer records, in MB; the oldest updates are removed."""
    log_mb: int = 32
    """Maximum size of each worker's log, in MB; older output is removed."""
    metrics_port: int = 0
    """Port of the loopback interface at which Prometheus finds the metrics of this run; 0: none."""

    def __post_init__(self) -> None:
        _check_at_least_one(self, "keep_last", "record_every", "record_mb", "log_mb")
        if not 0 <= self.metrics_port < 65536:
            raise ValueError(f"metrics_port must be from 1 to 65535, or 0 for none; found {self.metrics_port}")
        if self.keep_every < 0:
            raise ValueError(f"keep_every must be a number of steps, or 0 for none; found {self.keep_every}")
