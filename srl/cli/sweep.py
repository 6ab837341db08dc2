"""The command that trains many runs: `srl sweep`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from srl.base.process import num_cores, raise_stop_request
from srl.cli.flags import with_pairs
from srl.cli.parser import AlgorithmCommand, TrustCommand, flag, positional
from srl.storage import ROOT

if TYPE_CHECKING:
    from srl.api.status import RunStatus
    from srl.experiments.sweeps.sweep import OnEnd
    from srl.experiments.sweeps.sweep import Sweep as Done


@dataclass(frozen=True)
class Sweep(AlgorithmCommand, TrustCommand):
    """Train many runs in one directory: over seeds, a grid of options, several environments, or a search.

    Several runs train at once where that is faster, each in one thread unless you set --scheduler or --actors. The same
    command continues a sweep that was interrupted: finished runs are kept, others are resumed. More seeds and more
    values of the grid add runs.

    Examples:
      srl sweep CartPole-v1 --seeds 5
      srl sweep CartPole-v1 --grid ppo.learning-rate=1e-4,5e-4,2e-3 --grid lanes=8,32 --seeds 3
      srl sweep CartPole-v1 Acrobot-v1 --grid algo=ppo,a2c --seeds 5 --name algorithms
      srl sweep CartPole-v1 --search search.py --trials 50 --steps 100000
    """

    envs: tuple[str, ...] = positional("ENV", ())
    """Environments, as for `srl train`."""
    seeds: str = flag("SEEDS", "1")
    """Seeds of each combination: their number (5 means 0 to 4) or a list such as 3,5,8."""
    grid: tuple[str, ...] = flag("NAME=VALUE,...", (), repeated=True)
    """Values of an option; can be repeated for other options. NAME is any option of `srl train` (learning-rate,
    ppo.learning-rate, algo) or env-args.NAME."""
    search: Path | None = flag("FILE", None)
    """Python file with a function `suggest(trial)` for Optuna, which returns options, and possibly its `sampler` and
    `pruner`."""
    trials: int = 20
    """Trials of a search, each with all seeds."""
    metric: str = flag("NAME", "return")
    """Metric that a search maximizes: the mean over the last tenth of a run's steps."""
    minimize: bool = False
    """Minimize the metric of a search."""
    jobs: int | None = flag("N", None)
    """Runs at a time. Default: by cores and by what each run needs; all of them with `--scheduler slurm`."""
    name: str | None = flag("NAME", None)
    """Name of the sweep. Default: environment, algorithm and a hash of the options."""
    root: Path = flag("DIR", ROOT)
    """Directory of all runs."""
    env_arg: tuple[str, ...] = flag("NAME=VALUE", (), repeated=True)
    """Option of the environment; can be repeated. Values that are valid JSON are parsed."""
    config: Path | None = flag("FILE", None)
    """TOML or JSON file with options of `srl train`; flags override it."""

    def run(self) -> int:
        from srl.experiments.sweeps.plan import parse_grid, parse_seeds
        from srl.experiments.sweeps.sweep import make_search, prepare_sweep, sharing, start_sweep

        search = make_search(self.search, self.trials, self.metric, not self.minimize)
        keywords = with_pairs(self.keywords, self.env_arg, self.algo_arg)
        seeds, grid = parse_seeds(self.seeds), parse_grid(self.grid)
        prepared = prepare_sweep(
            self.envs or ("",), seeds, grid, search, self.config, keywords, "flag", self.trust_code
        )
        raise_stop_request()  # the imports took a while
        plan, options = prepared.plan, prepared.first.options
        count = len(plan.variants) * len(seeds) * (search.trials if search else 1)
        print(prepared.first.summary)
        share = sharing(options, count, num_cores(), self.jobs)
        print(f"{count} runs with --scheduler {options.workers.scheduler}, {share}; `srl ps` shows them", flush=True)
        return conduct_sweep(
            lambda observe, ended: start_sweep(
                prepared, self.name, self.root, self.jobs, observe, ended, self.trust_code
            )
        )


def conduct_sweep(conduct: Callable[[Callable[[RunStatus], None], OnEnd], Done]) -> int:
    """Conduct a sweep, with a line for each run that ends, and show what came out of it."""
    from rich.console import Console

    from srl.results.compare import compare
    from srl.storage.run_directory import all_runs
    from srl.terminal.view import log_line, watching

    console = Console()

    def ended(name: str, status: RunStatus | None, failure: str) -> None:
        line = f"failed: {failure}" if failure else log_line(status) if status else "stopped"
        console.print(f"{name}  {line}", markup=False, highlight=False, soft_wrap=True)

    with watching(console, name_runs=True) as (observe, _):
        done = conduct(observe, ended)
    if not all_runs(done.path):  # interrupted, or no run could start
        for name, reason in done.failures.items():
            print(f"{name} failed: {reason}")
        print(f"ended before the first run had results; continue with the same command, or: srl resume {done.path}")
        return 1 if done.failures else 130
    with suppress(ValueError):  # no run has an episode that ended
        print(f"\n{compare(done)}")
    for name, reason in done.failures.items():
        print(f"\n{name} failed: {reason}")
    if done.best:
        print(f"\nbest options: {', '.join(f'{option} {value}' for option, value in done.best.items())}")
    print(f"\ncompare again    srl compare {done.path}\nlearning curves  srl plot {done.path}")
    if done.complete:
        return 0
    print(f"continue         srl resume {done.path}")
    return 1 if done.failures else 130
