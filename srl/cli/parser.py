"""Dataclasses as command lines: fields are options, and the texts below them the help."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from srl.base.errors import nearest
from srl.experiments.options.keywords import json_or_text

EXPECTED = {int: "an integer", float: "a number", bool: "true or false"}
METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Option:
    """One option of a command: a flag, or a word without one."""

    name: str
    """Name of the field, with `algo.` before it for a field of the algorithm's config."""
    type: Any
    default: Any = MISSING
    text: str = ""
    metavar: str = ""
    positional: bool = False
    repeated: bool = False
    """Each use of the flag adds one value."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

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
        """The word that stands for the value in the help: ENV, N, NAME."""
        if self.metavar or self.is_switch:
            return self.metavar
        if self.choices:
            return "NAME"
        inner = [kind for kind in typing.get_args(self.type) if kind not in (type(None), Ellipsis)]
        kind = self.type if self.type in METAVARS else next(iter(inner), str)
        return METAVARS.get(kind, "VALUE") + (" ..." if self.is_list else "")


def positional(metavar: str, default: Any = MISSING) -> Any:
    """A field whose value is given without a flag."""
    return field(default=default, metadata={"positional": True, "metavar": metavar})


def flag(metavar: str, default: Any, *, repeated: bool = False) -> Any:
    """A field with a word of its own for its value; with `repeated` each use of the flag adds one."""
    return field(default=default, metadata={"metavar": metavar, "repeated": repeated})


def options_of(kind: type[Any], values: object | None = None, prefix: str = "") -> list[Option]:
    """The fields of a dataclass as options. Defaults are those of `values`, an instance, or of the class."""
    hints, texts = typing.get_type_hints(kind), field_texts(kind)
    found = []
    for each in dataclasses.fields(kind):
        if not each.init or each.metadata.get("hidden"):
            continue
        default = each.default if each.default_factory is MISSING else each.default_factory()
        default = default if values is None else getattr(values, each.name)
        marks = {name: each.metadata[name] for name in ("metavar", "positional", "repeated") if name in each.metadata}
        found.append(Option(prefix + each.name, hints[each.name], default, texts.get(each.name, ""), **marks))
    return found


def field_texts(kind: type[Any]) -> Mapping[str, str]:
    """The docstring below each field of a dataclass and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):  # typed into a prompt
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for statement, after in itertools.pairwise(body):
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                texts[statement.target.id] = " ".join(str(after.value.value).split())
    return texts


def parse_words(
    options: Sequence[Option], words: Sequence[str], resolve: Callable[[str], str] = lambda name: name
) -> dict[str, Any]:
    """The values that the words give, by the names of options. `resolve` maps the name of a flag, with underscores, to
    that of an option. Raises ValueError for words that cannot be understood."""
    flags = {option.name: option for option in options if not option.positional}
    positionals = [option for option in options if option.positional]
    values: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or word == "--":
            _take_positional(word, positionals, values)
            continue
        written, separator, text = word[2:].partition("=")
        name = resolve(written.replace("-", "_"))
        owner, dot, last = name.rpartition(".")
        negated = owner + dot + last.removeprefix("no_")
        if any(option.name == name for option in positionals):
            _take_positional(text if separator else _one(left, word), positionals, values)
        elif name in flags:
            option = flags[name]
            values[name] = _read(option, text if separator else None, left, values.get(name, ()))
        elif last.startswith("no_") and negated in flags and flags[negated].is_switch:
            values[negated] = False
        else:
            known = [option.flag for option in flags.values()]
            raise ValueError(f"no option --{written}{nearest('--' + written, known)}")
    missing = [option.metavar for option in positionals if option.required and option.name not in values]
    if missing:
        raise ValueError(f"{' and '.join(missing)} is missing")
    return values


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
        return True if text is None else convert(option, text)
    if option.is_list:
        words = text.split(",") if text else []
        while text is None and left and not left[0].startswith("--"):
            words.append(left.pop(0))
        return tuple(convert(option, word) for word in words)
    value = convert(option, _one(left, option.flag) if text is None else text)
    return (*before, value) if option.repeated else value


def convert(option: Option, text: str) -> Any:
    """A word in the type of its option."""
    hint = option.type
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if type(None) in members and text.lower() == "none":
        return None
    kinds = [_element(member) for member in members if member is not type(None)]
    for kind in kinds:
        try:
            return _converted(kind, text)
        except ValueError:
            continue
    expected = f"one of {', '.join(option.choices)}" if option.choices else EXPECTED.get(kinds[0], kinds[0].__name__)
    name = option.metavar if option.positional else option.flag
    hint_text = nearest(text, option.choices) if option.choices else ""
    raise ValueError(f"{name}: expected {expected}, found {text!r}{hint_text if 'did you' in hint_text else ''}")


def _element(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else hint


def _converted(kind: Any, text: str) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        return {str(choice): choice for choice in typing.get_args(kind)}[_among(text, typing.get_args(kind))]
    if kind is int:
        return _integer(text)
    if kind is bool:
        return {"true": True, "false": False}[_among(text.lower(), ("true", "false"))]
    if kind in (float, str, Path):
        return kind(text)
    return json_or_text(text)


def _among(text: str, choices: Sequence[Any]) -> str:
    if text not in map(str, choices):
        raise ValueError(text)
    return text


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        if not float(text).is_integer():
            raise
        return int(float(text))  # 1e6
