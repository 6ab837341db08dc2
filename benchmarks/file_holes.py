"""Holes that files once had, put back one at a time for `fuzz_files.py --self-test`: the fuzzer must notice each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from srl.base import config
from srl.environments import factories
from srl.environments.games.openspiel import OpenSpielConfig
from srl.experiments.options import config_file, sections


@dataclass(frozen=True)
class Hole:
    """A replacement of a function, described by what its files could do."""

    allows: str
    owner: Any
    name: str
    replace: Callable[[Any], Any]
    """Returns the replacement, given the original."""
    beside: Hole | None = None
    """Second hole, without which this one has no effect."""

    def open(self) -> None:
        setattr(self.owner, self.name, self.replace(getattr(self.owner, self.name)))
        if self.beside is not None:
            self.beside.open()


def _nothing(original: Any) -> Any:
    return lambda *arguments, **keywords: None


def _trusting(original: Any) -> Any:
    return lambda self, trusted, allowed=frozenset(), checked=False: original(self, True, allowed, False)


def _first_part(original: Any) -> Any:
    """Look for code before the first comma, while the code that makes callbacks splits before NAME=."""
    return lambda callback: ":" not in callback.split(",", 1)[0]


def _without_escapes(original: Any) -> Any:
    """Look for code in the text of a setting, before its JSON is decoded."""
    return lambda pairs: {"settings": pairs}


def _with_blanks(original: Any) -> Any:
    """Write options of Slurm to the batch script as they are."""

    def script(name: str, parts: Any, log: Any, command: Any, partition: str, more: Any) -> str:
        hidden = [option.replace(" ", "\N{BULLET}") for option in more]
        text: str = original(name, parts, log, command, partition.replace(" ", "\N{BULLET}"), hidden)
        return text.replace("\N{BULLET}", " ")

    return script


def holes(fuzzer: Any) -> tuple[Hole, ...]:
    """Return all holes. `fuzzer` is the module that uses what was read."""
    return (
        Hole("saved files to name any type and function", config._Decoder, "__init__", _trusting),
        Hole("option files to name any function", config_file, "refuse_code", _nothing),
        Hole("the title of a run to name any environment", fuzzer, "check_named_environment", _nothing),
        Hole("environments of unknown packages", factories, "is_known", lambda _: lambda name: True),
        Hole("callbacks that are checked by another parser", sections, "_is_plain", _first_part),
        Hole("parameters of games to name files", OpenSpielConfig, "named_code", lambda _: lambda self: ()),
        Hole("escapes in the settings of roles", sections, "parse_pairs", _without_escapes),
        Hole(
            "further options behind a blank in options of Slurm",
            *(fuzzer, "batch_script", _with_blanks),
            Hole("blanks in options", sections.ClusterOptions, "__post_init__", _nothing),
        ),
    )
