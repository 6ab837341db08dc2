"""Commands that train: `srl train`, `submit`, `resume` and `attach`."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.base.process import num_cores, raise_stop_request
from srl.cli.flags import with_pairs
from srl.cli.parser import AlgorithmCommand, RunCommand, TrustCommand, WatchCommand, flag, positional
from srl.experiments.options.config_file import CHOSEN, CollectedOptions, as_toml, gather
from srl.storage import ROOT

if TYPE_CHECKING:
    from srl.experiments.graph.preparation import PreparedRun
    from srl.experiments.session.run import Run


@dataclass(frozen=True)
class Train(AlgorithmCommand, TrustCommand, WatchCommand):
    """Train a policy.

    Examples:
      srl train CartPole-v1
      srl train ALE/Pong-v5 --steps 10000000 --eval-every 500000
      srl train my_module:make_env --env-arg difficulty=3 --algo.gamma 0.9
      srl train pettingzoo:butterfly.pistonball_v6 --algo mappo --lanes 8
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
    config: Path | None = flag("FILE", None)
    """TOML or JSON file with options; flags override it."""
    print_config: bool = False
    """Print the options and their sources as a --config file; do not train."""
    dry_run: bool = False
    """Print options and estimated speed, time and memory. The estimate comes from a trial of a few seconds, of
    which nothing is kept."""

    def run(self) -> int:
        from srl.experiments.session.launch import launch, watched

        gathered = self._gather({})
        prepared = self._prepare(gathered)
        if self.print_config or self.dry_run:
            from srl.terminal.tables import graph_table

            print(self._described(gathered, prepared), end="")
            print("\n# Workers and their streams:")
            print("\n".join(f"# {line}" for line in graph_table(prepared.experiment).plain.splitlines()), flush=True)
            if self.dry_run:
                print("\n# Estimate:")
                hints = [line for line in prepared.summary.splitlines() if line.startswith("hint")]
                print("\n".join(f"# {line}" for line in [*self._estimate(gathered, prepared), *hints]))
            return 0
        if self.log_format == "text":
            print(_wrapped(prepared.summary), flush=True)
        name, root = gathered.argument("name", self.name), Path(gathered.argument("root", self.root, ROOT))
        return exit_code(watched(lambda observe: launch(prepared, name, root, observe, _began()), self.log_format))

    def _gather(self, fixed: Mapping[str, Any]) -> CollectedOptions:
        keywords = {**with_pairs(self.keywords, self.env_arg, self.algo_arg), **fixed}
        return gather(self.config, keywords, "flag", self.trust_code)

    def _estimate(self, gathered: CollectedOptions, prepared: PreparedRun) -> list[str]:
        """Return lines with the estimated speed, time and memory of a run."""
        from srl.experiments.graph.preparation import prepare
        from srl.experiments.graph.replay import MIB, replay_bytes
        from srl.experiments.session.trial import trial, without_warmup
        from srl.terminal.formatting import duration, plural, rate

        short = prepare(gathered.environment(self.env), without_warmup(prepared.options), None, self.trust_code)
        found = trial(short)
        if not found.processes:
            took = duration(found.seconds)
            return [f"none: the workers had not started after {took}; `srl train` shows what they do"]
        steps = prepared.options.run.steps
        kind = "trained" if found.updates else "environment, there was no update yet"
        if not found.speed:
            waits = found.activity or "no environment step has returned"
            kind = f"nothing was measured in {duration(found.seconds)}; {waits}"
        time_needed = duration(steps / found.speed) if found.speed else "unknown"
        full = replay_bytes(prepared.experiment) / MIB
        return [
            f"speed   {rate(found.speed)} ({kind})",
            f"time    {time_needed} for {steps:,} steps",
            f"memory  {found.memory_mb:,.0f} MB in {plural(found.processes, 'process', 'es')}",
            *([f"replay  {full:,.0f} MB in addition when it is full"] if full else []),
            f"An estimate from a trial of {duration(found.seconds)}; other programs on this machine change it.",
        ]

    def _prepare(self, gathered: CollectedOptions) -> PreparedRun:
        from srl.experiments.graph.preparation import prepare

        env = gathered.environment(self.env)
        if not env:
            raise ValueError("ENV is missing: srl train CartPole-v1; `srl train --help` shows more examples")
        prepared = prepare(env, gathered.options, gathered.sources, self.trust_code)
        raise_stop_request()  # the imports took a while
        return prepared

    def _described(self, gathered: CollectedOptions, prepared: PreparedRun) -> str:
        from srl.experiments.graph.sizes import sizes_of

        arguments = {"env": self.env, "name": self.name, "root": str(self.root)}
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
        prepared = self._prepare(gathered)
        print(prepared.summary, file=sys.stderr)  # standard output may be redirected to a script file
        root = Path(gathered.argument("root", self.root, ROOT))
        print(submit(prepared, gathered.argument("name", self.name), root, self.dry_run))
        return 0


@dataclass(frozen=True)
class Resume(AlgorithmCommand, RunCommand, TrustCommand, WatchCommand):
    """Continue a run from its last checkpoint, in the same directory.

    Takes the options of `srl train`; options that are not given keep their values.

    Examples:
      srl resume latest --steps 2000000
      srl resume runs/pong --actors 4 --algo.learning-rate 1e-4
      srl resume runs/pong --checkpoint 0006-step-98304
    """

    run_name: str = positional("RUN")
    """Run: path, name, unique prefix of a name, or `latest`; or the directory of a sweep."""
    checkpoint: str = "latest"
    """Checkpoint to continue from: its name, its number of steps, or its path. Default: the newest undamaged one."""

    def run(self) -> int:
        from srl.cli.sweep import conduct_sweep
        from srl.experiments.session.launch import resume, watched
        from srl.experiments.sweeps.sweep import resume_sweep
        from srl.storage.run_directory import find_group

        changes = with_pairs(self.keywords, (), self.algo_arg)
        if (group := find_group(self.run_name, self.root)) is not None:
            if changes or self.checkpoint != "latest":
                raise ValueError(f"{self.run_name} is a sweep, which keeps its options; leave out the flags")
            return conduct_sweep(lambda observe, ended: resume_sweep(group, None, observe, ended, self.trust_code))
        found = self.find()
        changes |= {"checkpoint": self.checkpoint, "trust_code": self.trust_code}
        began = _began()
        return exit_code(
            watched(lambda observe: resume(found, on_status=observe, began=began, **changes), self.log_format)
        )


@dataclass(frozen=True)
class Attach(RunCommand, TrustCommand, WatchCommand):
    """Take over a run with `--scheduler hosts` whose command was killed, while its agents and workers continue."""

    def run(self) -> int:
        from srl.experiments.session.launch import attach, watched

        found = self.find()
        return exit_code(watched(lambda observe: attach(found, observe, self.trust_code), self.log_format))


def exit_code(run: Run) -> int:
    return 0 if run.state == "finished" else 130


def _began() -> float:
    """Return the time at which the command was entered, before Python started."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process().create_time()
    return time.time()


def _wrapped(text: str) -> str:
    """Wrap lines between words if they go to a terminal; other outputs keep one line each."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = (textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in text.splitlines())
    return "\n".join(lines)
