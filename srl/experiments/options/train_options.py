"""The options of `srl train`, each explained where it stands: the command line's help is made from this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from srl.algorithms.a2c import A2CConfig
from srl.algorithms.impala import ImpalaConfig
from srl.algorithms.mappo import IPPOConfig, MAPPOConfig
from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.config import PPOConfig
from srl.api.lanes import LONGEST_EPISODE
from srl.base.errors import nearest
from srl.experiments.recipes.recipe import AUTO
from srl.experiments.recipes.table import NAMES

ALGORITHMS = ("ppo", "a2c", "impala", "ppg", "ippo", "mappo")
CLUSTERS = ("hosts", "ray", "slurm")
"""Schedulers whose workers are on several machines, and have cores of their own there."""


@dataclass(frozen=True)
class TrainOptions:
    """How a policy is trained. What is None is chosen for the environment and the machine."""

    algo: str = "ppo"
    """The algorithm: `ppo`, `a2c`, `impala`, `ppg`, or for several agents `ippo` and `mappo`, whose options are below
    behind its name (or behind `--algo.`, whatever it is), or a config of your own as `package.module:Config` or
    `path/file.py:Config`."""
    recipe: str = AUTO
    """Tuned values for the options that you do not give. `auto`: those of the environment's family (classic control,
    Box2D, MuJoCo, Atari, MiniGrid, or what its spaces look like); `none`: the defaults shown here; or a recipe by its
    name, e.g. `mujoco` for a simulation of your own. See docs/howto/recipes.md."""
    scale: float | None = None
    """The recipe's batch is multiplied by this. None: 1, but for recipes that are meant for a cluster (hide-and-seek),
    where 1 is the paper's batch and a smaller machine takes a smaller one."""
    steps: int = 1_000_000
    """Agent decisions to learn from. Several policies share them by the numbers of their agents, and the run ends when
    all have theirs; who is done first goes on at the end of its schedules."""
    until_return: float | None = None
    """Stop as soon as the mean return of the last 100 episodes reaches this."""
    seed: int = 0
    """Of everything random: environments, networks, exploration."""
    scheduler: Literal["processes", "inline", "hosts", "ray", "slurm"] = "processes"
    """`processes` uses all cores; `inline` runs in one thread and repeats bit for bit; `hosts` also uses other
    machines, on each of which `srl agent` was started; `ray` uses the nodes of a Ray cluster; `slurm` submits the run
    as a job."""
    hosts: int = 1
    """Machines to wait for before the run begins, with `hosts` this one included; more may join later."""
    address: str = ""
    """Of Ray's head, HOST:PORT; by default the cluster that this machine belongs to."""
    partition: str = ""
    """Of Slurm; by default the cluster's own default."""
    resources: tuple[str, ...] = ()
    """What each worker of a group needs, with `hosts`, `ray` and `slurm`, as GROUP=NAME:AMOUNT,..., for example
    trainers=gpu:1,cpu:4 actors=cpu:2,memory_mb:500,node:fast. By default it is a CPU, and with a `device` of cuda a GPU
    for each trainer, which policy workers share. GROUP may be a pattern ('trainers*')."""
    slurm_options: tuple[str, ...] = ()
    """More options of `sbatch`, without the dashes: time=4:00:00 account=me."""
    bind: str = "127.0.0.1"
    """Address of this machine at which agents of others join: HOST or HOST:PORT."""
    secret_file: str = ""
    """File with the secret that lets agents join; made if it is missing. Default: ~/.srl/secret."""
    hosts_timeout: float = 60.0
    """Seconds to wait for them."""
    headless: float = 600.0
    """With `hosts`: seconds that agents and workers go on when this command is killed; `srl attach` takes them over."""
    encrypt: bool = False
    """Encrypt what goes between hosts. It is authenticated anyway; what trainers say to each other (gloo, NCCL) is
    neither."""
    inference: Literal["auto", "inline", "host", "remote"] = "auto"
    """Who decides: `inline` the actors themselves, `host` policy workers over shared memory, `remote` policy workers
    over TCP. `auto`: inline without an accelerator, else host."""
    actors: int | None = None
    """Processes that step environments."""
    lanes: int | None = None
    """Environment copies in each group of an actor's ring; they step together."""
    ring: int | None = None
    """Groups in each actor's ring: while one waits for decisions the others step. 1 is best for inline inference."""
    horizon: int | None = None
    """Steps in a block: how far a lane runs before its data is handed to the trainer."""
    batch: int | None = None
    """Decisions per update; a multiple of lanes x horizon. None: one block of every group of one actor, or of as many
    actors as you ask for; not of as many as there are cores, on which it would hang what is learned."""
    trainers: int = 1
    """Data-parallel trainers; each takes its share of the batch."""
    policies: int = 1
    """Policy workers, where inference is not inline."""
    in_flight: int = 1
    """Batches that a policy worker has under way; more than 1 for an accelerator that is busy or far away."""
    action_repeat: int = 1
    """Steps of the environment that each decision lasts; their rewards are added up. For plain Gymnasium environments
    in which noise that changes with every step gets nowhere. `steps`, `horizon` and gamma count decisions."""
    max_lag: int = 1
    """How many versions the deciding policy may be behind the update that learns from it. 0: exactly synchronous."""
    roles: tuple[str, ...] = ()
    """Which agents share a policy, as PATTERN=POLICY, e.g. 'hider*=hiders' 'seeker*=seekers'. None: one policy for all
    agents that have the same spaces. A role may have settings of its own behind commas: 'seeker*=seekers,horizon=40',
    any option of its algorithm ('gamma=0.9'), another algorithm ('algo=a2c'); or a policy that does not learn:
    'frozen=RUN' or 'frozen=RUN@CHECKPOINT'. See docs/howto/multi-agent.md."""
    self_play: Literal["none", "uniform", "prioritized"] = "none"
    """One policy plays all agents of a game, in each copy one of them learning: against its newest version, and against
    past ones, drawn evenly or by how hard they are to beat. `none`: agents that share a policy all learn."""
    self_play_share: float = 0.5
    """Of games against past versions, in [0, 1]."""
    self_play_every: int = 20
    """Updates between two versions that are kept as opponents."""
    self_play_versions: int = 12
    """At most so many are kept, spread over the run; up to 16."""
    team_reward: bool = False
    """Agents that share a policy share rewards: each gets the mean of what they all earn at a step."""
    hang_timeout: float = 60.0
    """Seconds in one step of an environment, or in one update, after which a worker counts as stuck."""
    max_env_failures: int = 10
    """Broken environments per minute and actor before the run gives up."""
    checkpoint_seconds: float = 30.0
    """Seconds between two checkpoints on disk."""
    keep_last: int = 3
    """How many of the newest checkpoints are kept. The best one, by evaluation or else by mean return, is kept too."""
    keep_every: int = 0
    """Keep also one checkpoint for every so many steps; 0: none, but in self-play as many as there may be opponents, so
    that a resumed run finds them again."""
    journal: bool = False
    """Keep a journal of every update, what it was made from and what it made: `srl chaos` checks it."""
    eval_every: int = 0
    """Steps between two evaluations in the background; 0: none. A worker of its own plays whole episodes with the
    newest parameters, and the best ones are kept (`--checkpoint best`)."""
    eval_episodes: int = 10
    """Episodes in each evaluation."""
    eval_share: float = 0.03
    """Share of one core that evaluation may take, in (0, 1]."""
    eval_greedy: bool = True
    """Evaluate the likeliest actions; otherwise they are drawn as in training."""
    eval_max_steps: int = LONGEST_EPISODE
    """Steps after which an episode of an evaluation is cut off: where none need end, a policy that runs against a wall
    would be evaluated for ever."""
    sinks: tuple[str, ...] = ("tensorboard",)
    """Where metrics go beside metrics.jsonl: `tensorboard`, `wandb`, `mlflow`, or a function of your own as
    `package.module:function`; W&B and MLflow are set up by their own environment variables."""
    graph: str = ""
    """Your own graph: `package.module:function` or `path/file.py:function`. The function gets the standard Experiment
    and returns the one to run, with more workers or other streams."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    a2c: A2CConfig = field(default_factory=A2CConfig)
    impala: ImpalaConfig = field(default_factory=ImpalaConfig)
    ppg: PPGConfig = field(default_factory=PPGConfig)
    ippo: IPPOConfig = field(default_factory=IPPOConfig)
    mappo: MAPPOConfig = field(default_factory=MAPPOConfig)
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Options of the environment itself."""
    algo_args: Mapping[str, Any] = field(default_factory=dict)
    """Options of an algorithm of your own."""

    def __post_init__(self) -> None:
        if self.algo not in ALGORITHMS and ":" not in self.algo:
            raise ValueError(
                f"no algorithm {self.algo!r} (your own is named package.module:Config or path/file.py:Config)"
                f"{nearest(self.algo, ALGORITHMS)}"
            )
        if self.algo in ALGORITHMS and self.algo_args:
            raise ValueError(f"options of {self.algo} are given behind its name: --{self.algo}.{min(self.algo_args)}")
        if self.recipe not in NAMES:
            raise ValueError(f"no recipe {self.recipe!r}{nearest(self.recipe, NAMES)}")
        for name in ("steps", "trainers", "policies", "in_flight", "hosts", "action_repeat"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, found {getattr(self, name)}")
        for name in ("actors", "lanes", "ring", "horizon", "batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, found {value}")
        if self.scale is not None and not self.scale > 0.0:
            raise ValueError(f"scale must be positive, found {self.scale}")
        if self.keep_last < 1:
            raise ValueError(f"keep_last must be at least 1, found {self.keep_last}")
        if self.keep_every < 0:
            raise ValueError(f"keep_every must be a number of steps, or 0 for none, found {self.keep_every}")
        if self.eval_every < 0 or self.eval_episodes < 1 or self.eval_max_steps < 1:
            raise ValueError(
                f"eval_every must be 0 (no evaluation) or more, eval_episodes and eval_max_steps at least 1; found "
                f"{self.eval_every}, {self.eval_episodes} and {self.eval_max_steps}"
            )
        if not 0.0 < self.eval_share <= 1.0:
            raise ValueError(f"eval_share is a share of one core, in (0, 1]; found {self.eval_share}")
        if not 0.0 <= self.self_play_share <= 1.0:
            raise ValueError(f"self_play_share is a share of games, in [0, 1]; found {self.self_play_share}")
        if self.self_play_every < 1 or not 1 <= self.self_play_versions <= 16:
            raise ValueError(
                f"self_play_every must be at least 1 and self_play_versions 1 to 16; found {self.self_play_every} and "
                f"{self.self_play_versions}"
            )
        if self.self_play != "none" and self.roles:
            raise ValueError("self_play has one policy for all agents; leave --roles out")
        if self.max_lag < 0:
            raise ValueError(f"max_lag must be 0 (synchronous) or more, found {self.max_lag}")
        if self.scheduler == "inline" and self.trainers > 1:
            raise ValueError("several trainers need processes of their own: use --scheduler processes")
        if self.scheduler == "inline" and self.inference == "remote":
            raise ValueError("remote inference needs processes of its own: use --scheduler processes")
