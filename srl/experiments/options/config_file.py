"""Config files: reading options from TOML or JSON, and writing a run's options as TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.lanes import named_texts
from srl.base.config import TrustCode, from_file, is_config, parse_json, refuse_code
from srl.base.files import read_regular
from srl.experiments.options.algorithms import option_names
from srl.experiments.options.aliases import SAME, set_twice
from srl.experiments.options.keywords import ALGO, merged
from srl.experiments.options.train_options import SECTIONS, TrainOptions
from srl.storage.signatures import is_own

MAX_BYTES = 16 << 20
COMMAND = ("env", "name", "root")
"""Arguments of `srl train` that are not options of the run, but that a file may also contain."""
CHOSEN = "chosen for this environment and machine"
HEAD = f"""\
# Comments name the source of each value: `default`; `recipe NAME` with its reason; `file NAME` (--config);
# `flag` (command line); `{CHOSEN}`.
"""


@dataclass(frozen=True)
class CollectedOptions:
    """Options from a file and from keywords or flags, which take precedence."""

    options: TrainOptions
    sources: Mapping[str, str]
    """Source of each option that was given: `lanes` -> `flag`, `algo.gamma` -> `file run.toml`."""
    command: Mapping[str, Any]  # command arguments in the file
    trust_code: TrustCode = True  # whether the file may name code outside of SRL

    def environment(self, given: Any) -> Any:
        """Return the environment: `given`, or else the file's. Raises UntrustedCode for the file's if it may not be
        loaded."""
        if not given and (named := self.command.get("env")):
            check_named_environment(str(named), self.options.run.env_args, "the config file", self.trust_code)
        return self.argument("env", given, "")

    def argument(self, name: str, given: Any, default: Any = None) -> Any:
        """Return the value of a command argument: `given` if it is not the default, else the file's."""
        return self.command.get(name, default) if given == default else given


def read_config(
    source: str | Path | Mapping[str, Any], trust_code: TrustCode = False
) -> tuple[dict[str, Any], TrustCode]:
    """Return the names and values in a TOML or JSON file or a dictionary, with dashes in names replaced by
    underscores. From a run's config.json, return its environment and options. Also return whether code outside of SRL
    is trusted: always in a dictionary and in the config.json of the user's own run.

    Raises UntrustedCode if a file names an algorithm outside of SRL that is not trusted.
    """
    if isinstance(source, Mapping):
        found: Any = source
        trust_code = True
    else:
        found, own = _parsed(Path(source))
        trust_code = trust_code or own
    if not isinstance(found, Mapping):
        raise ValueError(f"{source}: expected names and values, found {type(found).__name__}")
    if is_config(found.get("options")):
        run = from_file(found, {"environment": str, "options": TrainOptions}, str(source), trust_code)
        return {"env": run["environment"], **vars(run["options"])}, trust_code
    values = {n: value if n == "env_args" else _underscored(value) for n, value in _underscored(found).items()}
    if ":" in str(values.get("algo", "")):
        refuse_code((str(values["algo"]),), str(source), trust_code)
    return values, trust_code


def _parsed(path: Path) -> tuple[Any, bool]:
    """Return the content of a file, and whether a run of this user wrote it."""
    try:
        content = read_regular(path, MAX_BYTES)
        if path.suffix == ".json":
            return parse_json(content, str(path)), is_own(path, content)
        return tomllib.loads(content.decode()), False
    except FileNotFoundError:
        raise ValueError(f"no config file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def check_named_environment(env: str, env_args: Mapping[str, Any], place: str, trust_code: TrustCode) -> None:
    """Raise UntrustedCode if a file names an environment that is not in one of the known packages, or options of it
    that could name a file."""
    from srl.environments.factories import is_known
    from srl.environments.games.config import is_packaged_game
    from srl.environments.registry import lanes_config

    if trust_code is True:
        return
    named: tuple[str, ...] = () if is_known(env) else (env,)
    if named and (":" not in env or env.startswith(("envpool:", "pettingzoo:")) or is_packaged_game(env)):
        named = lanes_config(env).named_code()  # without the options: checking them would import the environment
    refuse_code((*named, *named_texts(env_args)), place, trust_code)


def _underscored(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    names: dict[str, str] = {}
    for written in value:
        if (first := names.setdefault(written.replace("-", "_"), written)) != written:
            raise set_twice(first, written)
    return {name: value[written] for name, written in names.items()}


def gather(
    config: str | Path | Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
    source: str,
    trust_code: TrustCode = False,
) -> CollectedOptions:
    """Return the options of a config file, overridden by keywords, whose source is `source` (e.g. `flag`). Raises
    UntrustedCode if the file names code outside of SRL that is not trusted."""
    if config is None:
        options, given = merged(TrainOptions(), keywords)
        return CollectedOptions(options, dict.fromkeys(given, source), {})
    title = "file" if isinstance(config, Mapping) else f"file {Path(config).name}"
    file, trust_code = read_config(config, trust_code)
    arguments = {SAME.get(name, name): name for name in file if SAME.get(name, name) in COMMAND}
    command = {argument: file.pop(name) for argument, name in arguments.items()}
    if "algo" not in file and isinstance(keywords.get("algo"), str):
        file["algo"] = keywords["algo"]  # the file's settings are for the algorithm chosen here
    try:
        before, from_file = merged(TrainOptions(), file)
    except ValueError as error:
        raise ValueError(f"{title}: {error}") from error
    parts = (before, *vars(before).values())
    code = [name for part in parts if hasattr(part, "named_code") for name in part.named_code()]
    refuse_code(code, title, trust_code)
    if "env_args" in keywords:
        keywords = {**keywords, "env_args": {**before.run.env_args, **keywords["env_args"]}}
    options, given = merged(before, keywords)
    kept = from_file if options.algo == before.algo else {name for name in from_file if not name.startswith(ALGO)}
    sources = dict.fromkeys((*kept, *command), title) | dict.fromkeys(given, source)
    return CollectedOptions(options, sources, command, trust_code)


def as_toml(
    command: Mapping[str, Any], options: TrainOptions, sources: Mapping[str, str], sizes: Mapping[str, int]
) -> str:
    """Return the options as TOML for `--config`, each with a comment naming its source: that in `sources`, or
    `default`. Options that are None become comments, with the chosen value if `sizes` has one."""
    config: Any = options.algorithm
    tables = {section: (vars(getattr(options, section)), "") for section in SECTIONS}
    tables["algorithm"] = ({name: getattr(config, name) for name in option_names(type(config))}, ALGO)
    rows = [(_line(name, value), sources[name]) for name, value in command.items()]
    rows.append((_line("algo", options.algo), sources.get("algo", "default")))
    for table, (values, prefix) in tables.items():
        rows += [("", ""), (f"[{table}]", "")]
        for name, value in values.items():
            source = sources.get(prefix + name, "default")
            chosen = sizes.get(name) if value is None and not prefix else None
            if chosen is not None:
                rows.append((f"# {name} = {chosen}", sources.get(f"chosen {name}", CHOSEN)))
            else:
                rows.append((_line(name, value) if value is not None else f"# {name} is not set", source))
    width = min(40, max(len(line) for line, _ in rows))
    return HEAD + "".join(f"{line:{width}}  # {source}\n" if source else f"{line}\n" for line, source in rows)


def _line(name: str, value: Any) -> str:
    return f"{name} = {_toml(value)}"


def _toml(value: Any) -> str:
    """Format a value as TOML, with strings as in JSON."""
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
