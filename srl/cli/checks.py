"""The commands that look for mistakes in what users bring: `srl check-env` and `srl check-algo`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, make_dataclass
from typing import Any

from tyro.conf import Positional, UseAppendAction

from srl.experiments.options.algorithms import ALGORITHMS, build_algorithm
from srl.experiments.options.keywords import parse_pairs


@dataclass(frozen=True)
class CheckEnv:
    """Look for the classic mistakes in an environment: shapes, dtypes, NaN, resets, shared buffers."""

    env: Positional[str]
    """As for `srl train`."""
    env_arg: UseAppendAction[tuple[str, ...]] = ()
    """An option of the environment, as NAME=VALUE."""
    steps: int = 1000
    """How many steps to try."""
    seed: int = 0

    def run(self) -> int:
        from srl.testing.env_checks.environment import check_environment, has_errors, report

        findings = check_environment(self.env, parse_pairs(self.env_arg), steps=self.steps, seed=self.seed)
        print(report(findings, self.env))
        return 1 if has_errors(findings) else 0


@dataclass(frozen=True)
class CheckAlgo:
    """Train an algorithm on probes, tiny environments whose answers are known, and compare what it has learned.

    Finds the mistakes that raise no error: rewards off by a step, truncation taken for termination, memories that are
    not reset. Takes the options of the algorithm as `srl train` does; ends with code 1 if a probe fails.

    Examples:
      srl check-algo ppo
      srl check-algo ppo --algo.memory lstm --probe memory --probe leak
      srl check-algo my_file.py:Config --algo-arg width=32
    """

    algo: Positional[str]
    """`ppo`, `a2c`, `impala`, `ppg`, `ippo`, `mappo`, or a config of your own as `package.module:Config` or
    `path/file.py:Config`."""
    probe: UseAppendAction[tuple[str, ...]] = ()
    """Run only this probe; can be given several times."""
    algo_arg: UseAppendAction[tuple[str, ...]] = ()
    """An option of an algorithm of your own, as NAME=VALUE."""
    effort: float = 1.0
    """Train so many times as long, for an algorithm that learns slowly."""
    seed: int = 0
    json: bool = False
    """One line of JSON for each probe."""

    def run(self) -> int:
        from srl.checks.algorithm import check_algo, has_failed

        options: dict[str, Any] = {name: getattr(self, name) for name in ALGORITHMS if hasattr(self, name)}
        if self.algo_arg:
            options["algorithm"] = parse_pairs(self.algo_arg)
        with _Telling(self.json) as telling:
            results = check_algo(
                self.algo,
                probes=self.probe,
                seed=self.seed,
                effort=self.effort,
                on_result=telling.hear,
                **options,
            )
        return 1 if has_failed(results) else 0

    @classmethod
    def of(cls, algorithm: str) -> type[CheckAlgo]:
        """The command with the options of this algorithm, if it is one of ours."""
        if algorithm not in ALGORITHMS:
            return cls
        config: Any = build_algorithm(algorithm)
        named = {"__doc__": cls.__doc__}
        own = [(algorithm, type(config), field(default=config))]
        return make_dataclass("CheckAlgo", own, bases=(cls,), frozen=True, namespace=named)


class _Telling:
    """Shows each result as soon as it is there: lines of JSON, or at the end a table, drawn as it grows on a
    terminal."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._results: list[Any] = []
        self._live: Any = None

    def __enter__(self) -> _Telling:
        if not self._json:
            from rich.live import Live

            from srl.terminal.tables import probe_table

            self._live = Live(probe_table([]), auto_refresh=False)
            self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def hear(self, result: Any) -> None:
        if self._json:
            print(json.dumps(asdict(result)), flush=True)
            return
        from srl.terminal.tables import probe_table

        self._results.append(asdict(result))
        self._live.update(probe_table(self._results), refresh=True)
