"""Command lines from dataclasses: fields are options, and their docstrings are the help."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Literal

from srl.base.errors import did_you_mean
from srl.experiments.options.algorithms import ALGORITHMS, missing_option
from srl.experiments.options.aliases import SAME, as_flag, set_twice
from srl.experiments.options.keywords import ALGO, checked, expected
from srl.experiments.options.setting_texts import json_or_text
from srl.storage import ROOT, run_directory
from srl.storage.run_directory import RunDirectory

LAST = ("sample", "checkpoint", "json", "root", "trust_code")
"""Options that many commands share; the help shows them after a command's own options."""
CONSTANTS = {"none": None, "true": True, "false": False}
METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Option:
    """One option of a command: a flag or a positional argument."""

    name: str  # field name, with the prefix `algo.` for a field of the algorithm's config
    type: Any
    default: Any = MISSING
    text: str = ""
    metavar: str = ""
    positional: bool = False
    repeated: bool = False  # each use of the flag adds one value

    @property
    def flag(self) -> str:
        return as_flag(self.name)

    @property
    def is_switch(self) -> bool:
        return self.type is bool

    @property
    def is_list(self) -> bool:
        return typing.get_origin(self.type) is tuple and not self.repeated

    @property
    def required(self) -> bool:
        return self.default is MISSING

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(map(str, typing.get_args(self.type))) if typing.get_origin(self.type) is typing.Literal else ()

    @property
    def shown_metavar(self) -> str:
        """Placeholder for the value in the help: ENV, N, NAME."""
        if self.metavar or self.is_switch:
            return self.metavar
        if self.choices:
            return "NAME"
        inner = [kind for kind in typing.get_args(self.type) if kind not in (type(None), Ellipsis)]
        kind = self.type if self.type in METAVARS else next(iter(inner), str)
        return METAVARS.get(kind, "VALUE") + (" ..." if self.is_list else "")


def positional(metavar: str, default: Any = MISSING) -> Any:
    """Return a field whose value is given without a flag."""
    return field(default=default, metadata={"positional": True, "metavar": metavar})


def flag(metavar: str, default: Any, *, repeated: bool = False) -> Any:
    """Return a field with its own placeholder. With `repeated`, each use of the flag adds one value."""
    return field(default=default, metadata={"metavar": metavar, "repeated": repeated})


@dataclass(frozen=True, kw_only=True)
class RunCommand:
    """Fields shared by commands for one run."""

    run_name: str = positional("RUN")
    """Run: path, name, unique prefix of a name, or `latest`."""
    root: Path = flag("DIR", ROOT)
    """Directory of all runs."""

    def find(self) -> RunDirectory:
        return run_directory.find(self.run_name, self.root)

    def name(self) -> str:
        """Return the name of the run. `latest` is the newest run in the directory, because the newest active run may
        belong to another project."""
        latest = self.run_name == run_directory.LATEST
        return run_directory.find(self.run_name, self.root, include_empty=True).name if latest else self.run_name


@dataclass(frozen=True, kw_only=True)
class TrustCommand:
    """Field shared by commands that read files of runs or options from a file."""

    trust_code: bool = False
    """Load code that other people's files name. Without this flag, runs and --config files that name code are
    refused. Runs that you started do not need it."""


@dataclass(frozen=True, kw_only=True)
class WatchCommand:
    """Field shared by commands that show a run until it ends."""

    log_format: Literal["text", "json"] = "text"
    """Output: a live view or lines for people, or one JSON object per line for programs that collect logs."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmCommand:
    """Fields shared by commands that take algorithm options. Training commands also take run options."""

    algo_arg: tuple[str, ...] = flag("NAME=VALUE", (), repeated=True)
    """Option of your own algorithm, same as --algo.NAME VALUE."""
    keywords: Mapping[str, Any] = field(default_factory=dict, metadata={"hidden": True})
    """Options of the run and of the algorithm that were given as flags."""


def options_of(kind: type[Any], values: object | None = None, prefix: str = "") -> list[Option]:
    """Return the fields of a dataclass as options, with defaults from the instance `values` or else from the class."""
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError, AttributeError):  # a user's class, with names for type checkers only
        hints = {}
    texts, found = field_texts(kind), []  # type: ignore[arg-type]  # mypy does not see that classes are hashable
    for each in dataclasses.fields(kind):
        if not each.init or each.metadata.get("hidden"):
            continue
        default = each.default if each.default_factory is MISSING else each.default_factory()
        default = default if values is None else getattr(values, each.name)
        marks = {name: each.metadata[name] for name in ("metavar", "positional", "repeated") if name in each.metadata}
        found.append(Option(prefix + each.name, hints.get(each.name, Any), default, texts.get(each.name, ""), **marks))
    return sorted(found, key=lambda option: option.name in LAST)


@functools.cache
def field_texts(kind: type[Any]) -> Mapping[str, str]:
    """Return the docstring below each field of a dataclass and its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):  # defined in an interactive session
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for statement, after in itertools.pairwise(body):
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                texts[statement.target.id] = " ".join(str(after.value.value).split())
    return texts


def parse_words(options: Sequence[Option], words: Sequence[str], algo: str = "") -> dict[str, Any]:
    """Parse the words into values by option name. The last value of a flag wins. Raises ValueError with all errors."""
    by_name = {option.name: option for option in options}
    positionals = [option for option in options if option.positional]
    values: dict[str, Any] = {}
    written_as: dict[str, str] = {}
    errors = []
    left = list(words)
    while left:
        word = left.pop(0)
        try:
            if not word.startswith("--") or word == "--":
                _take_positional(word, positionals, values)
                continue
            head, separator, text = word[2:].partition("=")
            written = head.replace("-", "_")
            name, negated = _named(written, by_name, algo)
            option, plain = by_name[name], _without_no(written) if negated else written
            if written_as.setdefault(name, plain) != plain and not option.repeated:
                raise set_twice(as_flag(written_as[name]), as_flag(plain))
            value = text if separator else None
            if option.positional:
                _take_positional(_one(left, word) if value is None else value, [option], values)
            else:
                values[name] = False if negated else _read(option, value, left, values.get(name, ()))
        except ValueError as error:
            errors.append(str(error))
            while left and not left[0].startswith("--"):
                left.pop(0)
    missing = [option.metavar for option in positionals if option.required and option.name not in values]
    if missing and not errors:
        errors.append(f"{' and '.join(missing)} is missing")
    if errors:
        raise ValueError("\n".join(errors))
    return values


def _named(written: str, options: Mapping[str, Option], algo: str) -> tuple[str, bool]:
    """Return the option that a flag refers to, and whether the flag negates it."""
    if name := _meaning(written, options, algo):
        return name, False
    plain = _without_no(written)
    name = _meaning(plain, options, algo) if plain != written else ""
    if name and options[name].is_switch:
        return name, True
    owner, _, last = written.rpartition(".")
    if owner in ALGORITHMS and owner != algo and ALGO + last in options:
        raise ValueError(
            f"{as_flag(written)} is an option of {owner}, but the algorithm is {algo}; to set it for {algo}, use "
            f"{as_flag(ALGO + last)}"
        )
    known = [as_flag(name.rpartition(".")[2])[2:] for name in options]
    close = did_you_mean(last, known, cutoff=0.7, prefix="--")
    raise ValueError((missing_option(last, algo, flags=True) if algo else "") or f"no option {as_flag(written)}{close}")


def _without_no(written: str) -> str:
    """Return the name that a negated flag negates: `algo.double` for `no_algo.double` and `algo.no_double`."""
    return re.sub(r"^no_|\.no_", lambda found: found[0].removesuffix("no_"), written, count=1)


def _meaning(written: str, known: Collection[str], algo: str) -> str:
    """Return the option that a flag refers to, or an empty string. If the command has an algorithm, the flag may be a
    name from another library."""
    owner, dot, last = written.rpartition(".")
    if dot and owner + dot not in (ALGO, f"{algo}."):
        return ""
    for name in (last, SAME.get(last, last) if algo else last):
        for option in (ALGO + name,) if dot else (name, ALGO + name):
            if option in known:
                return option
    return ""


def _take_positional(word: str, positionals: Sequence[Option], values: dict[str, Any]) -> None:
    for option in positionals:
        if option.is_list:
            values[option.name] = (*values.get(option.name, ()), convert(option, word))
            return
        if option.name not in values:
            values[option.name] = convert(option, word)
            return
    raise ValueError(f"unexpected argument {word!r}")


def _one(left: list[str], word: str) -> str:
    if not left or (left[0].startswith("--") and left[0] != "--"):
        raise ValueError(f"{word} needs a value")
    return left.pop(0)


def _read(option: Option, text: str | None, left: list[str], before: Sequence[Any]) -> Any:
    """Return a flag's value: the text after `=`, or the following words, which are removed from `left`."""
    if option.is_switch:
        if text is None and left and left[0].lower() in ("true", "false"):
            text = left.pop(0)
        return True if text is None else convert(option, text)
    if option.is_list:
        words = text.split(",") if text else []
        while text is None and left and not left[0].startswith("--"):
            words.append(left.pop(0))
        return tuple(convert(option, word) for word in words)
    value = convert(option, _one(left, option.flag) if text is None else text)
    return (*before, value) if option.repeated else value


def convert(option: Option, text: str) -> Any:
    """Convert a word to the type of its option."""
    hint = typing.get_args(option.type)[0] if typing.get_origin(option.type) is tuple else option.type
    if hint is Any:
        return json_or_text(text)
    if hint in (Path, Path | None):
        return Path(text)
    name = option.metavar if option.positional else option.flag
    for value in (CONSTANTS.get(text.lower(), text), text, json_or_text(text), _float_or_text(text)):
        with contextlib.suppress(ValueError):
            return checked(name, value, hint)
    raise ValueError(f"{name} must be {expected(hint)}, found {text!r}{did_you_mean(text, option.choices)}")


def _float_or_text(text: str) -> float | str:
    try:
        return float(text)  # .5 and 1_000 are not JSON
    except ValueError:
        return text
