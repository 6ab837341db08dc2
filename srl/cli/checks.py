"""Commands that check and measure: `srl doctor`, `check-env`, `check-algo`, `verify` and `bench`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from srl.bench.options import BenchOptions
from srl.cli.flags import with_pairs
from srl.cli.parser import AlgorithmCommand, RunCommand, flag, positional
from srl.experiments.options.setting_texts import parse_pairs


@dataclass(frozen=True)
class CheckEnv:
    """Check an environment for common mistakes: shapes, dtypes, NaN, resets, shared buffers. Exits with code 1 if it
    finds errors."""

    env: str = positional("ENV")
    """Environment, as for `srl train`."""
    env_arg: tuple[str, ...] = flag("NAME=VALUE", (), repeated=True)
    """Option of the environment; can be repeated."""
    steps: int = 1000
    """Number of steps to take."""
    seed: int = 0
    """Seed for the environment and the random actions."""

    def run(self) -> int:
        from srl.testing.env_checks.environment import check_environment, has_errors, report

        findings = check_environment(self.env, parse_pairs(self.env_arg), steps=self.steps, seed=self.seed)
        print(report(findings, self.env))
        return 1 if has_errors(findings) else 0


@dataclass(frozen=True)
class CheckAlgo(AlgorithmCommand):
    """Train an algorithm on probes, tiny environments with known solutions, and check its results.

    Finds mistakes that raise no error: rewards off by one step, truncation treated as termination, memories that are
    not reset. Takes algorithm options as `srl train` does. Exits with code 1 if a probe fails.

    Examples:
      srl check-algo ppo
      srl check-algo ppo --algo.memory lstm --probe memory --probe leak
      srl check-algo my_file.py:Config --algo-arg width=32
    """

    algo: str = positional("ALGO")
    """Algorithm: a name, as for `--algo` of `srl train`, or your own config class as `package.module:Config` or
    `path/file.py:Config`."""
    probe: tuple[str, ...] = flag("NAME", (), repeated=True)
    """Probe to run instead of all; can be repeated."""
    effort: float = 1.0
    """Multiplier for the length of training, for an algorithm that learns slowly."""
    seed: int = 0
    """Seed for environments, networks and exploration."""
    json: bool = False
    """Print one line of JSON per probe."""

    def run(self) -> int:
        from srl.checks.algorithm import check_algo, has_failed

        with _result_view(self.json) as show:
            results = check_algo(
                self.algo,
                probes=self.probe,
                seed=self.seed,
                effort=self.effort,
                on_result=show,
                **with_pairs(self.keywords, (), self.algo_arg),
            )
        return 1 if has_failed(results) else 0


@dataclass(frozen=True)
class Bench(BenchOptions):
    """Measure this machine: training `throughput`, the environment `ring`, a bare `actor`, or the `control` of many
    workers."""

    what: Literal["throughput", "ring", "actor", "control"] = positional("BENCHMARK", "throughput")
    """Benchmark: `throughput`, `ring`, `actor` or `control`."""

    def run(self) -> int:
        from srl.bench import throughput

        result = throughput.measure(self.what, self)
        print(json.dumps(result) if self.json else throughput.describe(result))
        return 0


@dataclass(frozen=True)
class Verify(RunCommand):
    """Verify a run or a checkpoint: that its files are undamaged, and who signed them. Exits with code 1 if a file is
    damaged or, with --key, not signed by that key. A saved replay and recorded streams have no signature.

    Every run signs its files with the key of the user who started it. Others can verify them with a copy of that user's
    ~/.srl/signing.pub.

    Examples:
      srl verify latest
      srl verify downloads/pong --key alice.pub
    """

    run_name: str = positional("RUN")
    """Run: path, name, unique prefix of a name, or `latest`; or a checkpoint directory."""
    key: Path | None = flag("FILE", None)
    """Public key that must have signed all files."""

    def run(self) -> int:
        from srl.storage.checkpoints import is_checkpoint
        from srl.storage.signatures import read_key
        from srl.storage.verification import verify

        wanted = read_key(self.key) if self.key is not None else ""
        named = Path(self.run_name)
        path = named if is_checkpoint(named) else self.find().path
        found = verify(path)
        print("\n".join(file.describe() for file in found))
        damaged = any(file.problem for file in found) | _verify_replay(path) | _verify_streams(path)
        wrong = [file for file in found if wanted and not file.is_signed_by(wanted)]
        if wrong:
            print(f"{len(wrong)} of {len(found)} are not signed by {self.key}")
        return 1 if wrong or damaged else 0


def _verify_replay(run: Path) -> bool:
    """Print whether the saved replay of a run is undamaged. Return whether it is damaged."""
    from srl.replay.saved import saved_shards
    from srl.storage.run_directory import RunDirectory

    problems = {name: shard.problems() for name, shard in saved_shards(RunDirectory(run).replay).items()}
    for name, found in problems.items():
        print("\n".join(f"{name}: {problem}" for problem in found or ["undamaged, not signed"]))
    return any(problems.values())


def _verify_streams(run: Path) -> bool:
    """Print whether the recorded streams of a run are undamaged. Return whether they are damaged."""
    from srl.results.recorded_blocks import stream_problems

    problems = stream_problems(run)
    for name, found in problems.items():
        print("\n".join(f"{name}: {problem}" for problem in found or ["undamaged, not signed"]))
    return any(problems.values())


@dataclass(frozen=True)
class Doctor:
    """Show this machine's hardware and software, what is missing, and which options to set."""

    def run(self) -> int:
        from rich.console import Console

        from srl.terminal.doctor import doctor_table, examine, healthy

        findings = examine()
        Console().print(doctor_table(findings))
        return 0 if healthy(findings) else 1


@contextmanager
def _result_view(as_json: bool) -> Iterator[Callable[[Any], None]]:
    """Yield a function that shows the result of a probe, as a line of JSON or in a growing table."""
    if as_json:
        yield lambda result: print(json.dumps(asdict(result)), flush=True)
        return
    from rich.live import Live

    from srl.terminal.tables import probe_table

    results: list[Any] = []
    live = Live(auto_refresh=False)

    def add(result: Any) -> None:
        if not results:  # not earlier: an error in the arguments must not follow an empty table
            live.start()
        results.append(asdict(result))
        live.update(probe_table(results), refresh=True)

    try:
        yield add
    finally:
        live.stop()
        if results and not live.console.is_terminal:
            live.console.line()  # rich ends the last line only in a terminal
