"""Commands that train: `srl train`, `submit`, `resume` and `attach`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.base.process import num_cores, raise_stop_request
from srl.cli.flags import with_pairs
from srl.cli.parser import AlgorithmCommand, RunCommand, flag, positional
from srl.experiments.options.config_file import CHOSEN, CollectedOptions, as_toml, gather
from srl.storage import ROOT

if TYPE_CHECKING:
    from srl.experiments.graph.preparation import PreparedRun
    from srl.experiments.session.session import Run


@dataclass(frozen=True)
class Train(AlgorithmCommand):
    """Train a policy.

    Examples:
      srl train CartPole-v1
      srl train ALE/Pong-v5 --steps 10000000 --eval-every 500000
      srl train my_module:make_env --env-arg difficulty=3 --algo.gamma 0.9
      srl train pettingzoo:butterfly.pistonball_v6 --algo mappo --lanes 8
      srl train CartPole-v1 --seeds 5 --name sweep
      srl train CartPole-v1 --print-config
    """

    env: str = positional("ENV", "")
    """Environment: a Gymnasium id, `package.module:function`, `path/file.py:function`, `pettingzoo:module` or
    `envpool:id`."""
    name: str | None = flag("NAME", None)
    """Name of the run. Default: environment, algorithm, seed and time."""
    root: Path = flag("DIR", ROOT)
    """Directory of all runs."""
    env_arg: tuple[str, ...] = flag("NAME=VALUE", (), repeated=True)
    """Option of the environment; can be repeated. Values that are valid JSON are parsed."""
    seeds: str | None = flag("SEEDS", None)
    """Seeds for several runs in one directory: their number (5 means 0 to 4) or a list such as 3,5,8."""
    config: Path | None = flag("FILE", None)
    """TOML or JSON file with options, which flags override."""
    print_config: bool = False
    """Print the options that would be used, with their sources, as a --config file; do not train."""

    def run(self) -> int:
        from srl.experiments.session.launch import launch, watched

        gathered = self._gather({})
        prepared = self._prepare(gathered)
        if self.print_config:
            from srl.terminal.tables import graph_table

            print(self._described(gathered, prepared), end="")
            print("\n# Workers and their streams:")
            print("\n".join(f"# {line}" for line in graph_table(prepared.experiment).plain.splitlines()))
            return 0
        print(prepared.summary, flush=True)
        name, root = gathered.argument("name", self.name), Path(gathered.argument("root", self.root, ROOT))
        if (seeds := gathered.argument("seeds", self.seeds)) is not None:
            from srl.experiments.session.sweep import parse_seeds, start_sweep

            numbers, env = parse_seeds(str(seeds)), prepared.experiment.environment
            return _conduct_sweep(lambda observe: start_sweep(env, numbers, prepared.options, name, root, observe))
        return exit_code(watched(lambda observe: launch(prepared, name, root, observe, _began())))

    def _gather(self, fixed: Mapping[str, Any]) -> CollectedOptions:
        return gather(self.config, {**with_pairs(self.keywords, self.env_arg, self.algo_arg), **fixed}, "flag")

    def _prepare(self, gathered: CollectedOptions) -> PreparedRun:
        from srl.experiments.graph.preparation import prepare

        env = gathered.argument("env", self.env, "")
        if not env:
            raise ValueError("ENV is missing: srl train CartPole-v1; `srl train --help` shows more examples")
        prepared = prepare(env, gathered.options, gathered.sources)
        raise_stop_request()  # the imports took a while
        return prepared

    def _described(self, gathered: CollectedOptions, prepared: PreparedRun) -> str:
        from srl.experiments.graph.sizes import sizes_of

        arguments = {"env": self.env, "name": self.name, "root": str(self.root), "seeds": self.seeds}
        flags = {name: value for name, value in arguments.items() if value and value != str(ROOT)}
        env_args = [source for name, source in prepared.from_recipe.items() if name.startswith("env.")]
        chosen = f"{CHOSEN} ({prepared.profile.step_us:.3g} µs per step, {num_cores()} cores)"
        sources = {**prepared.from_recipe, "recipe": "chosen for this environment", "chosen actors": chosen}
        sources["env_args"] = "; ".join(env_args) or "default"
        sources |= {**gathered.sources, **dict.fromkeys(flags, "flag")}
        return as_toml({**gathered.command, **flags}, prepared.options, sources, sizes_of(prepared.experiment))


@dataclass(frozen=True)
class Submit(Train):
    """Submit a run to Slurm and return: `srl train ENV --scheduler slurm` without watching it."""

    dry_run: bool = False
    """Print the batch script without submitting it."""

    def run(self) -> int:
        from srl.experiments.session.launch import submit

        gathered = self._gather({"scheduler": "slurm"})
        if gathered.argument("seeds", self.seeds) is not None:
            raise ValueError("`srl submit` submits one run; use --seeds with `srl train`, or submit each --seed")
        prepared = self._prepare(gathered)
        print(prepared.summary, file=sys.stderr)  # standard output may be redirected to a script file
        root = Path(gathered.argument("root", self.root, ROOT))
        print(submit(prepared, gathered.argument("name", self.name), root, self.dry_run))
        return 0


@dataclass(frozen=True)
class Resume(AlgorithmCommand, RunCommand):
    """Continue a run from its last checkpoint, in the same directory.

    Takes the options of `srl train`; options that are not given keep their values.

    Examples:
      srl resume latest --steps 2000000
      srl resume runs/pong --actors 4 --algo.learning-rate 1e-4
    """

    run_name: str = positional("RUN")
    """Run: path, name, unique prefix of a name, or `latest`; or the directory of a sweep."""

    def run(self) -> int:
        from srl.experiments.session.launch import resume, watched
        from srl.experiments.session.sweep import resume_sweep
        from srl.storage.run_directory import find_group

        changes = with_pairs(self.keywords, (), self.algo_arg)
        if (group := find_group(self.run_name, self.root)) is not None:
            if changes:
                raise ValueError(f"{self.run_name} is a sweep, which keeps its options; leave out the flags")
            return _conduct_sweep(lambda observe: resume_sweep(group, observe))
        found = self.find()
        return exit_code(watched(lambda observe: resume(found, on_status=observe, began=_began(), **changes)))


@dataclass(frozen=True)
class Attach(RunCommand):
    """Take over a run with `--scheduler hosts` whose command was killed, while its agents and workers continue."""

    def run(self) -> int:
        from srl.experiments.session.launch import attach, watched

        found = self.find()
        return exit_code(watched(lambda observe: attach(found, observe)))


def exit_code(run: Run) -> int:
    return 0 if run.state == "finished" else 130


def _conduct_sweep(go: Any) -> int:
    from rich.console import Console

    from srl.terminal.tables import sweep_table
    from srl.terminal.view import watching

    with watching(name_runs=True) as (observe, _):
        done = go(observe)
    Console().print(sweep_table(done.statuses, done.returns_by_policy))
    print(f"\nlearning curves: srl plot {done.path}")
    if not done.complete:
        print(f"missing seeds: srl resume {done.path}")
    return 0 if done.complete else 130


def _began() -> float:
    """Return the time at which the command was entered, before Python started."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process().create_time()
    return time.time()
