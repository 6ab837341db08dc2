"""The command line. Each command is a small class; its help is what stands here."""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tyro
from tyro.conf import Fixed, OmitArgPrefixes, Positional, Suppress, UseAppendAction, arg, subcommand

from srl.base import errors
from srl.base.process import raise_stop_request, recorded_stop_requests
from srl.bench.options import BenchOptions
from srl.cli.checks import CheckAlgo, CheckEnv
from srl.cli.cluster import Agent, Chaos, Logs
from srl.cli.control import Ps, Scale, Stop
from srl.cli.league import League
from srl.cli.results import Eval, Export, Plot, Record
from srl.cli.words import chosen_algorithm, given_on, given_values, options_before, spell_out
from srl.experiments.options.algorithms import ALGORITHMS, build_algorithm
from srl.experiments.options.keywords import parse_pairs
from srl.experiments.options.train_options import SECTIONS, TrainOptions
from srl.storage import ROOT

if TYPE_CHECKING:
    from srl.experiments.graph.preparation import PreparedRun
    from srl.experiments.session.train import Run


@dataclass(frozen=True)
class Train:
    """Train a policy.

    Examples:
      srl train CartPole-v1
      srl train ALE/Pong-v5 --steps 10000000
      srl train my_package.my_module:make_env --env-arg difficulty=3 --ppo.learning-rate 1e-3
      srl train pettingzoo:butterfly.pistonball_v6 --lanes 8
      srl train CartPole-v1 --seeds 5
    """

    env: Positional[str]
    """A Gymnasium id, `package.module:function`, `path/file.py:function`, `pettingzoo:module` or `envpool:id`."""
    name: str | None = None
    """Of the run; by default made of environment, algorithm, seed and time."""
    root: Path = ROOT
    """Directory below which runs are kept."""
    env_arg: UseAppendAction[tuple[str, ...]] = ()
    """An option of the environment, as NAME=VALUE; values are read as JSON where they can be."""
    algo_arg: UseAppendAction[tuple[str, ...]] = ()
    """An option of an algorithm of your own, as NAME=VALUE."""
    seeds: str | None = None
    """Train with several seeds: a number of them (5 means 0 to 4), or a list such as 3,5,8. One directory holds all."""
    options: Annotated[TrainOptions, arg(name="")] = field(default_factory=TrainOptions)
    given: Annotated[frozenset[str], Fixed, Suppress] = frozenset()
    """The options that stood on the command line: a recipe leaves them alone."""

    def run(self) -> int:
        from srl.experiments.session.train import launch, watched

        prepared = self._prepare(self._options())
        print(prepared.recipe, flush=True)
        if self.seeds is not None:
            return self._sweep(prepared.options)
        return _code_of(watched(lambda observe: launch(prepared, self.name, self.root, observe, _began())))

    def _prepare(self, options: TrainOptions) -> PreparedRun:
        from srl.experiments.graph.preparation import prepare

        prepared = prepare(self.env, options, self.given)
        raise_stop_request()  # much was imported
        return prepared

    def _sweep(self, options: TrainOptions) -> int:
        from srl.experiments.session.sweep import parse_seeds, start_sweep

        seeds = parse_seeds(self.seeds or "")
        return _conduct_sweep(lambda observe: start_sweep(self.env, seeds, options, self.name, self.root, observe))

    def _options(self) -> TrainOptions:
        options = TrainOptions(**vars(self.options))  # not the parser's subclass of it: see _narrowed
        if options.algo not in ALGORITHMS:
            options = options.replace(algorithm=build_algorithm(options.algo, parse_pairs(self.algo_arg)))
        elif self.algo_arg:
            raise ValueError(f"options of {options.algo} are given after its name: --algo.{min(self.algo_arg)}")
        return options.replace(env_args=parse_pairs(self.env_arg))


@dataclass(frozen=True)
class Submit(Train):
    """Hand a run over to Slurm and leave it there: `srl train ENV --scheduler slurm` without watching it."""

    dry_run: bool = False
    """Show the batch script and submit nothing."""

    def run(self) -> int:
        from srl.experiments.session.train import submit

        if self.seeds is not None:
            raise ValueError("`srl submit` hands over one run; use --seeds with `srl train`, or submit each --seed")
        prepared = self._prepare(self._options().replace(scheduler="slurm"))
        print(prepared.recipe, file=sys.stderr)  # what follows may be a script for a file
        print(submit(prepared, self.name, self.root, self.dry_run))
        return 0


@dataclass(frozen=True)
class Resume:
    """Go on with a run from its last checkpoint, in the same directory. All options are those of `srl train`, their
    defaults what the run has.

    Examples:
      srl resume latest
      srl resume latest --steps 2000000
      srl resume latest --ppo.learning-rate 1e-4 --actors 4
    """

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its path, its name, a unique beginning of its name, or `latest`; or a sweep of seeds that was interrupted."""
    root: Path = ROOT
    """Directory below which runs are kept."""
    algo_arg: UseAppendAction[tuple[str, ...]] = ()
    """An option of an algorithm of your own, as NAME=VALUE."""
    options: Annotated[TrainOptions, arg(name="")] = field(default_factory=TrainOptions)
    given: Annotated[frozenset[str], Fixed, Suppress] = frozenset()
    """The options that stood on the command line: all others stay as they were."""

    def run(self) -> int:
        from srl.experiments.session.sweep import resume_sweep
        from srl.experiments.session.train import resume, watched
        from srl.storage.run_directory import find, find_group

        if (group := find_group(self.run_name, self.root)) is not None:
            if given_values(self.options, self.given):
                raise ValueError(f"{self.run_name} is a sweep, which goes on as it began; leave the options out")
            return _conduct_sweep(lambda observe: resume_sweep(group, observe))
        found = find(self.run_name, self.root)
        changes = given_values(self.options, self.given)
        if self.algo_arg:
            changes["algorithm"] = parse_pairs(self.algo_arg)
        return _code_of(watched(lambda observe: resume(found, on_status=observe, began=_began(), **changes)))


@dataclass(frozen=True)
class Attach:
    """Take over a run (`--scheduler hosts`) whose command was killed: its agents and workers go on, and come back to
    this one."""

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its path, its name, a unique beginning of its name, or `latest`."""
    root: Path = ROOT
    """Directory below which runs are kept."""

    def run(self) -> int:
        from srl.experiments.session.train import attach, watched
        from srl.storage.run_directory import find

        found = find(self.run_name, self.root)
        return _code_of(watched(lambda observe: attach(found, observe)))


@dataclass(frozen=True)
class Bench:
    """Measure this machine: `throughput` of training, the environment `ring`, the raw `actor`, or the `control` of very
    many workers."""

    what: Positional[Literal["throughput", "ring", "actor", "control"]] = "throughput"
    """What to measure."""
    options: OmitArgPrefixes[BenchOptions] = field(default_factory=BenchOptions)

    def run(self) -> int:
        from srl.bench import throughput

        result = throughput.measure(self.what, self.options)
        print(json.dumps(result) if self.options.json else throughput.describe(result))
        return 0


@dataclass(frozen=True)
class Doctor:
    """What this machine offers, what is missing, and what to set because of it."""

    def run(self) -> int:
        from rich.console import Console

        from srl.terminal.doctor import doctor_table, examine, healthy

        facts = examine()
        Console().print(doctor_table(facts))
        return 0 if healthy(facts) else 1


def _narrowed(command: type[Any], words: Sequence[str], defaults: TrainOptions) -> type[Any]:
    """`Train` and its like as parser and help should be: with the options of one algorithm, not of all; and knowing
    which of them are given."""
    algorithm = chosen_algorithm(words, defaults.algo)
    sections: list[Any] = [
        (name, Annotated[kind, arg(name="")], field(default=getattr(defaults, name))) for name, kind in SECTIONS.items()
    ]
    config: Any = defaults.algorithm
    if algorithm != defaults.algo:
        config = build_algorithm(algorithm) if algorithm in ALGORITHMS else None  # its file is loaded later
    parsed: Any = Annotated[type(config), arg(name=algorithm)]
    own = parsed if algorithm in ALGORITHMS else Annotated[Any, Fixed, Suppress]
    options = make_dataclass(
        "TrainOptions", [*sections, ("algorithm", own, field(default=config))], bases=(TrainOptions,), frozen=True
    )
    default = options(**{**vars(defaults), "algo": algorithm, "algorithm": config})
    narrowed: list[Any] = [
        ("options", Annotated[options, arg(name="")], field(default=default)),
        ("given", Annotated[frozenset[str], Fixed, Suppress], field(default=given_on(words))),
    ]
    named = {"__doc__": command.__doc__}
    return make_dataclass(command.__name__, narrowed, bases=(command,), frozen=True, namespace=named)


MENDABLE = (ValueError, LookupError, ImportError, OSError, RuntimeError, MemoryError)
"""The errors of ours that are messages to a user. Whatever else we raise is a mistake of ours."""
COMMANDS: dict[str, Callable[[Sequence[str], TrainOptions], Any]] = {
    "train": partial(_narrowed, Train),
    "submit": partial(_narrowed, Submit),
    "check-algo": lambda words, _: CheckAlgo.of(chosen_algorithm(words)),
    "resume": partial(_narrowed, Resume),
    "attach": lambda *_: Attach,
    "eval": lambda *_: Eval,
    "league": lambda *_: League,
    "record": lambda *_: Record,
    "plot": lambda *_: Plot,
    "export": lambda *_: Export,
    "ps": lambda *_: Ps,
    "stop": lambda *_: Stop,
    "scale": lambda *_: Scale,
    "logs": lambda *_: Logs,
    "agent": lambda *_: Agent,
    "chaos": lambda *_: Chaos,
    "check-env": lambda *_: CheckEnv,
    "bench": lambda *_: Bench,
    "doctor": lambda *_: Doctor,
}


def parse(arguments: list[str]) -> Any:
    """The command that was meant, ready to `run`."""
    before = options_before(arguments)
    words = spell_out(arguments, before.algo)
    if words[:1] and words[0] in COMMANDS:  # the parsers of all others would take a fifth of a second
        command = COMMANDS[words[0]](words, before)
        about = inspect.cleandoc(command.__doc__)  # whole: of a docstring, tyro leaves the examples out
        return tyro.cli(command, prog=f"srl {words[0]}", args=words[1:], description=about)
    known = [Annotated[command(words, before), subcommand(name)] for name, command in COMMANDS.items()]
    either: Any = Union[tuple(known)]
    about = f"ReaLly Scalable RL. With {errors.DEBUG}=1 in the environment, errors show their whole traceback."
    return tyro.cli(either, prog="srl", args=words, description=about)


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `srl`. Errors that a user can mend are one message; those of his own code come with his part of
    the traceback, and those of ours with all of it."""
    try:
        with recorded_stop_requests():
            return int(parse(sys.argv[1:] if arguments is None else arguments).run())
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _explain(error)


def _explain(error: Exception) -> int:
    from srl.experiments.session.session import RunFailed
    from srl.storage.checkpoints import CheckpointError

    if not isinstance(error, MENDABLE) and not errors.user_traceback(error):
        raise error
    sys.stdout.flush()
    print(errors.explain(error), file=sys.stderr)
    return 1 if isinstance(error, (RunFailed, CheckpointError)) else 2


def _code_of(run: Run) -> int:
    return 0 if run.state == "finished" else 130


def _conduct_sweep(go: Any) -> int:
    from rich.console import Console

    from srl.terminal.tables import sweep_table
    from srl.terminal.view import watching

    with watching() as (observe, _):
        done = go(observe)
    Console().print(sweep_table(done.statuses, done.returns))
    print(f"\ncurves with their interval: srl plot {done.path}")
    if not done.complete:
        print(f"the seeds that are missing: srl resume {done.path}")
    return 0 if done.complete else 130


def _began() -> float:
    """When the command was given: before Python started."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return psutil.Process().create_time()
    return time.time()
