"""Plans of sweeps: which runs there are, what they are called, and the file that describes them."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srl.base.config import TrustCode, from_file, to_data
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.aliases import as_flag, set_twice
from srl.experiments.options.config_file import check_named_environment
from srl.experiments.options.setting_texts import json_or_text
from srl.experiments.options.train_options import TrainOptions
from srl.storage import run_directory
from srl.storage.curves import flattened
from srl.storage.run_directory import RunDirectory

CONSTANTS = {"none": None, "true": True, "false": False}
MAX_NAME = 64


@dataclass(frozen=True)
class Variant:
    """Runs of a sweep that differ only in their seeds."""

    label: str  # part of the runs' names: `learning_rate-0.001`; empty if the sweep has one variant
    env: str
    options: TrainOptions  # complete, with the recipe's values

    def __post_init__(self) -> None:
        if self.label and run_directory.slug(self.label) != self.label:
            raise ValueError(f"{self.label!r} cannot be part of a run's name")


@dataclass(frozen=True)
class Member:
    """One run of a sweep."""

    run: RunDirectory
    env: str
    options: TrainOptions


@dataclass(frozen=True)
class Search:
    """Search of a sweep: each trial is a variant whose options a function suggests."""

    function: str  # `path/file.py:suggest`
    trials: int
    metric: str = "return"
    maximize: bool = True

    def named_code(self) -> tuple[str, ...]:
        return (self.function,)


@dataclass(frozen=True)
class Plan:
    """All runs of a sweep: each variant with each seed. With a search, trials change the options of the one variant."""

    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    search: Search | None = None

    def members(self, path: Path) -> list[Member]:
        return [member for variant in self.variants for member in self.members_of(variant, path)]

    def members_of(self, variant: Variant, path: Path) -> list[Member]:
        return [
            Member(RunDirectory(path / _member_name(path.name, variant.label, seed)), variant.env, options)
            for seed in self.seeds
            for options in [variant.options.replace(seed=seed)]
        ]


def _member_name(sweep: str, label: str, seed: int) -> str:
    """Return a name that only the variant and the seed determine: `mine-learning_rate-0.001-0`."""
    name = f"{sweep}-{label}-{seed}" if label else f"{sweep}-{seed}"
    return name if len(name) <= MAX_NAME else f"{sweep[:40]}-{_digest(label)}-{seed}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def save_plan(plan: Plan, path: Path, own: bool = True) -> None:
    """Write the plan into the directory of the sweep, which is created if it does not exist. `own`: all of it is the
    user's."""
    run_directory.write_group(path, {"plan": to_data(plan)}, own)


def read_plan(path: Path, trust_code: TrustCode = False) -> Plan:
    """Return the plan of the sweep in a directory. Raises UntrustedCode if another user wrote it and it names code."""
    place = str(path / run_directory.GROUP)
    description, own = run_directory.read_group(path)
    trusted = trust_code or own
    if trusted is not True:
        run_directory.refuse_special_files(path)  # the sweep will write to this directory
    plan: Plan = from_file(description, {"plan": Plan}, place, trusted)["plan"]
    for variant in plan.variants:
        check_named_environment(variant.env, variant.options.run.env_args, place, trusted)
    return plan


def extended(plan: Plan, before: Plan, scheduler_given: bool) -> Plan:
    """Return the plan of a command that is given again for an existing sweep: the variants and seeds of both.

    Raises ValueError if the options of a variant have changed, because its finished runs have the earlier ones.
    """
    if _kind(plan) != _kind(before):
        raise ValueError("it has another search, or none")
    known = {variant.label: variant for variant in before.variants}
    chosen = before.variants[0].options.workers.scheduler
    variants = {}
    for variant in plan.variants:
        options = variant.options if scheduler_given else variant.options.replace(scheduler=chosen)
        variants[variant.label] = now = replace(variant, options=options)
        if variant.label in known and (difference := _difference(known[variant.label], now)):
            raise ValueError(difference)
    seeds = tuple(dict.fromkeys((*before.seeds, *plan.seeds)))
    return Plan(tuple((known | variants).values()), seeds, plan.search)


def _kind(plan: Plan) -> Any:
    return plan.search and replace(plan.search, trials=0)


def _difference(before: Variant, now: Variant) -> str:
    """Return the first option in which two variants differ, in words; empty if there is none."""
    old, new = (flattened({"env": each.env, "options": to_data(each.options)}) for each in (before, now))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not names:
        return ""
    name = names[0].removeprefix("options.")
    return f"{name} was {old.get(names[0])} and is now {new.get(names[0])}"


def default_name(plan: Plan) -> str:
    """Return a name that depends on the options alone, so that the same command finds its sweep again."""
    variants = [replace(each, options=each.options.replace(scheduler="inline", seed=0)) for each in plan.variants]
    content = to_data(Plan(tuple(variants), (), _kind(plan)))
    first = variants[0]
    title = first.env.rpartition("/")[2] if len({each.env for each in variants}) == 1 else "sweep"
    return f"{run_directory.slug(f'{title}-{title_of(first.options.algo)}')[:40]}-{_digest(json.dumps(content))}"


def parse_seeds(text: str | int | Sequence[int]) -> tuple[int, ...]:
    """Return the seeds: `5` means 0 to 4, `3,5,8` these three."""
    if isinstance(text, str):
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            raise ValueError(f"seeds must be a count, e.g. 5, or a list, e.g. 3,5,8; found {text!r}") from None
        seeds: Sequence[int] = range(numbers[0]) if len(numbers) == 1 else numbers
    else:
        seeds = range(text) if isinstance(text, int) else text
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"expected at least one seed, without duplicates; found {text!r}")
    return tuple(seeds)


def parse_grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of each option in a grid: `ppo.learning-rate=1e-4,5e-4`; lists are written as in JSON."""
    grid: dict[str, list[Any]] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or not text:
            raise ValueError(f"--grid takes NAME=VALUE,VALUE,..., e.g. learning-rate=1e-4,5e-4; found {word!r}")
        owner, dot, last = name.replace("-", "_").rpartition(".")
        name = owner + dot + (name.rpartition(".")[2] if owner == "env_args" else last)
        if name in grid:
            raise ValueError(f"--grid {name} is given twice; write all of its values in one list")
        try:
            values = json.loads(f"[{text}]")
        except json.JSONDecodeError:
            values = [CONSTANTS.get(part.lower(), json_or_text(part)) for part in text.split(",")]
        grid[name] = values
    return grid


def combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values in a grid: `{"ppo.learning_rate": 1e-4, "lanes": 8}`."""
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ValueError(f"the grid needs a list of values for {name}, found {values!r}")
        if len({json.dumps(value, default=str) for value in values}) != len(values):
            raise ValueError(f"the grid repeats a value of {name}: {', '.join(map(str, values))}")
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def with_settings(keywords: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords for :func:`srl.train` with settings whose names may be dotted: `ppo.gamma`, `env_args.size`."""
    complete = dict(keywords)
    for path, value in settings.items():
        owner, _, name = path.rpartition(".")
        inner = complete.get(owner, {}) if owner else complete
        if name in inner:
            raise set_twice(as_flag(name), f"--grid {path}")
        if owner:
            complete[owner] = {**inner, name: value}
        else:
            complete[name] = value
    return complete


def label_of(env: str, settings: Mapping[str, Any], several_environments: bool) -> str:
    """Return the part of a run's name that says which variant it is."""
    parts = [env.rpartition("/")[2]] if several_environments else []
    parts += [f"{name.rpartition('.')[2]}-{value}" for name, value in settings.items()]
    return run_directory.slug("-".join(parts)) if parts else ""
