"""Config files: options in TOML or JSON, and a run's options written as such a file."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.experiments.options.keywords import ALGO, merged
from srl.experiments.options.train_options import SECTIONS, TrainOptions

COMMAND = ("env", "name", "root", "seeds")
"""Arguments of `srl train` that are not options of the run, which a file may have too."""


@dataclass(frozen=True)
class CollectedOptions:
    """Options from a file and from keywords or flags, which win."""

    options: TrainOptions
    sources: Mapping[str, str]
    """Where each option that was given comes from: `lanes` -> `flag`, `algo.gamma` -> `file run.toml`."""
    command: Mapping[str, Any]
    """Arguments of the command that the file has."""

    def argument(self, name: str, given: Any, default: Any = None) -> Any:
        """The value of an argument of the command: the given one if it is not the default, else that of the file."""
        return self.command.get(name, default) if given == default else given


def read_config(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a TOML or JSON file, or of a dictionary. Dashes in names count as underscores."""
    if isinstance(source, Mapping):
        found: Any = source
    else:
        path = Path(source)
        try:
            found = json.loads(path.read_text()) if path.suffix == ".json" else tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise ValueError(f"no config file {path}") from None
        except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
            kind = "JSON" if path.suffix == ".json" else "TOML"
            raise ValueError(f"{path} is not valid {kind}: {error}") from None
    if not isinstance(found, Mapping):
        raise ValueError(f"{source}: expected names and values, found {type(found).__name__}")
    return {name.replace("-", "_"): _underscored(value, name) for name, value in found.items()}


def _underscored(value: Any, name: str) -> Any:
    if not isinstance(value, Mapping) or name in ("env_args", "env-args"):
        return value
    return {key.replace("-", "_"): inner for key, inner in value.items()}


def gather(config: str | Path | Mapping[str, Any] | None, keywords: Mapping[str, Any], source: str) -> CollectedOptions:
    """The options of a config file, changed by keywords; `source` says what these are (`flag`)."""
    if config is None:
        options, given = merged(TrainOptions(), keywords)
        return CollectedOptions(options, dict.fromkeys(given, source), {})
    title = "file" if isinstance(config, Mapping) else f"file {Path(config).name}"
    file = read_config(config)
    command = {name: file.pop(name) for name in COMMAND if name in file}
    if "algo" not in file and isinstance(keywords.get("algo"), str):
        file["algo"] = keywords["algo"]  # the file's settings are for the algorithm chosen here
    before, from_file = _from_file(file, title)
    if "env_args" in keywords:
        keywords = {**keywords, "env_args": {**before.run.env_args, **keywords["env_args"]}}
    options, given = merged(before, keywords)
    kept = from_file if options.algo == before.algo else {name for name in from_file if not name.startswith(ALGO)}
    return CollectedOptions(options, {**dict.fromkeys(kept, title), **dict.fromkeys(given, source)}, command)


def _from_file(file: Mapping[str, Any], title: str) -> tuple[TrainOptions, frozenset[str]]:
    try:
        return merged(TrainOptions(), file)
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from error


def as_toml(
    command: Mapping[str, Any], options: TrainOptions, sources: Mapping[str, str], sizes: Mapping[str, int]
) -> str:
    """The options as a TOML file that `--config` reads, each with its source in a comment: `sources` has those of the
    options that are not defaults. Options without a value are comments, with the one that was chosen in `sizes`."""
    rows: list[tuple[str, str]] = [(_line(name, value), sources.get(name, "")) for name, value in command.items()]
    rows.append((_line("algo", options.algo), sources.get("algo", "default")))
    for section, kind in SECTIONS.items():
        rows += [("", ""), (f"[{section}]", "")]
        for each in dataclasses.fields(kind):
            rows.append(_row(each.name, options.value(each.name), sources.get(each.name, "default"), sizes))
    rows += [("", ""), ("[algorithm]", "")]
    config: Any = options.algorithm
    for each in dataclasses.fields(config):
        if each.init:
            rows.append(_row(each.name, getattr(config, each.name), sources.get(ALGO + each.name, "default"), {}))
    width = min(40, max(len(line) for line, _ in rows))
    return "".join(f"{line:{width}}  # {source}\n" if source else f"{line}\n" for line, source in rows)


def _row(name: str, value: Any, source: str, sizes: Mapping[str, int]) -> tuple[str, str]:
    if value is not None:
        return _line(name, value), source
    if name in sizes:
        return f"# {name} = {sizes[name]}", "chosen for this environment and machine"
    return f"# {name} =", "not set"


def _line(name: str, value: Any) -> str:
    return f"{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    """A value in TOML. Strings are as in JSON, which is a subset."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(name)} = {_toml(item)}" for name, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(str(value))
