"""Command-line help, generated from the docstrings of commands and their fields."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import Any

from srl.base.errors import DEBUG
from srl.cli.flags import CHECK, RESUME, algorithm_options, chosen_algorithm, options_before, run_options
from srl.cli.parser import AlgorithmCommand, Option, options_of
from srl.experiments.options.algorithms import ALGORITHMS, algorithm_class, title_of
from srl.experiments.options.sections import ONLY_AT_START
from srl.experiments.options.train_options import SECTIONS, TrainOptions

INDENT, COLUMN = 2, 28
WIDEST = 120
COMMON = {
    "What to train": ("env", "envs", "env_arg", "algo", "recipe", "config", "trust_code", "print_config", "dry_run"),
    "The sweep": ("seeds", "grid", "search", "trials", "metric", "minimize", "jobs"),
    "The run": ("steps", "until_return", "until", "seed", "name", "root"),
    "Workers and data": ("scheduler", "actors", "lanes", "horizon", "batch", "trainers", "max_lag"),
    "Learning": (
        *("algo.learning_rate", "algo.gamma", "algo.hidden_sizes", "algo.memory", "algo.device"),
        *("algo.replay_size", "algo.learning_starts", "algo.updates_per_decision"),
    ),
    "Results": ("eval_every", "sinks", "callbacks"),
}
"""Options that the help of training commands shows."""
RARE = {"algo_arg", "log_format"}
"""Options of training commands that only the help of all options shows."""
TOPICS = {
    "run": "steps, goals, recipe, metrics, callbacks, graph",
    "workers": "scheduler, inference, number of workers, sizes of batches",
    "agents": "several agents: roles, team reward, self-play",
    "evaluation": "evaluation in the background",
    "checkpoints": "checkpoints to write and to keep",
    "cluster": "several machines: hosts, Ray, Slurm",
    "network": "layers, convolutions, memory, actions",
    "replay": "replay memory of off-policy algorithms",
    "offline": "learning from recorded data",
    "recipes": "tuned options by environment; also `srl help mujoco`",
}


@dataclass(frozen=True)
class HelpText:
    """A text to print instead of running a command."""

    text: str

    def run(self) -> int:
        print(self.text, flush=True)
        return 0


def width() -> int:
    """Return the width of the terminal, limited to a readable range."""
    return min(WIDEST, max(60, shutil.get_terminal_size((100, 24)).columns))


def has_long_help(kind: type[Any], name: str) -> bool:
    """Return whether `--help` of a command shows only some of its options."""
    return issubclass(kind, AlgorithmCommand) and name != CHECK


def command_help(kind: type[Any], name: str, words: Sequence[str], everything: bool) -> str:
    """Return the help for a command. With `everything`, training commands show all their options."""
    about, examples = docstring_of(kind)
    own = options_of(kind)
    words_first = [option for option in own if option.positional]
    positionals = "".join(f" {option.metavar}" if option.required else f" [{option.metavar}]" for option in words_first)
    lines = [f"usage: srl {name}{positionals} [options]", "", *wrapped(about)]
    if not issubclass(kind, AlgorithmCommand):
        return "\n".join([*lines, *block("Options", own), *_examples(examples)])
    defaults, algo = options_before(name, words), chosen_algorithm(name, words)
    refused = ONLY_AT_START if name == RESUME else {"seed": "it takes --seeds"} if name == "sweep" else {}
    of_run = [option for option in run_options(defaults, algo, name == CHECK) if option.name not in refused]
    if everything or not has_long_help(kind, name):
        lines += block(f"Options of srl {name}", own)
        for section in SECTIONS if name != CHECK else ():
            lines += section_help(section, of_run)
        lines += block(f"Options of {title_of(algo)}", algorithm_options(algo, defaults))
        return "\n".join([*lines, *_examples(examples)])
    options = {option.name: option for option in (*own, *of_run)}
    shown: set[str] = set()
    for heading, names in COMMON.items():
        found = [options[each] for each in names if each in options]
        shown |= {option.name for option in found}
        lines += block(heading, found, brief=True)
    if algo not in ALGORITHMS:
        lines += block(f"Options of {title_of(algo)}", _own_options(algo, defaults))
    others = [option for option in own if option.name not in shown | RARE]
    lines += block("This command", others, brief=True)
    return "\n".join([*lines, *_examples(examples), *more_help(name)])


def _own_options(algo: str, defaults: TrainOptions) -> list[Option]:
    """Return the options that a user's algorithm adds to those of SRL's algorithms."""
    inherited = {
        field.name
        for base in algorithm_class(algo).__mro__
        if base.__module__.startswith("srl.") and dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    return [option for option in algorithm_options(algo, defaults) if option.name.rpartition(".")[2] not in inherited]


def more_help(name: str) -> list[str]:
    rows = [(f"srl {name} --help-all", "all options"), ("srl help NAME", "an algorithm or an option")]
    rows += [(f"srl help {topic}", about) for topic, about in TOPICS.items()]
    return ["", "More help", *(line for left, right in rows for line in row(left, right))]


def overview() -> str:
    """Return the help for `srl` itself: commands by group, each with the first sentence of its docstring."""
    from srl.cli.main import GROUPS, command_class

    lines = ["usage: srl COMMAND ...", "", *wrapped("ReaLly Scalable RL: train policies on one machine or on many.")]
    for heading, names in GROUPS.items():
        lines += ["", heading]
        for name in names:
            lines += row(name, _first_sentence(docstring_of(command_class(name))[0]), column=14)
    lines += ["", *wrapped("`srl COMMAND --help` explains a command, `srl help TOPIC` a group of options.")]
    return "\n".join([*lines, *wrapped(f"With {DEBUG}=1 in the environment, errors show their full traceback.")])


def section_help(name: str, options: Sequence[Option]) -> list[str]:
    members = {"algo"} if name == "run" else set()
    members |= {field.name for field in dataclasses.fields(SECTIONS[name])}
    about = wrapped(inspect.cleandoc(SECTIONS[name].__doc__ or ""))
    return ["", *about, *block("", [option for option in options if option.name in members])]


def block(heading: str, options: Sequence[Option], *, brief: bool = False) -> list[str]:
    """Return a heading and its options; with `brief`, only the first sentence of each text."""
    if not options:
        return []
    lines = ["", heading] if heading else []
    for option in options:
        lines += row(_left(option), _right(option, brief))
    return lines


def _left(option: Option) -> str:
    if option.positional:
        return option.metavar
    return f"{option.flag} {option.shown_metavar}".rstrip()


def _right(option: Option, brief: bool) -> str:
    text, _, described = option.text.partition(" Default: ")
    text = _first_sentence(text) if brief else text
    notes = []
    if option.choices and not all(f"`{choice}`" in text for choice in option.choices):
        notes.append(f"one of {', '.join(option.choices)}")
    if described:
        notes.append(f"default: {described.partition(';')[0] if brief else described}".removesuffix("."))
    elif option.is_switch and option.default is True:
        notes.append(f"default: yes; {option.flag.replace('--', '--no-', 1)} for no")
    elif option.default not in (MISSING, None, "", ()) and not option.is_switch:
        notes.append(f"default: {shown_value(option.default)}")
    return f"{text} ({'; '.join(notes)})" if notes else text


def shown_value(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def row(left: str, right: str, column: int = COLUMN) -> list[str]:
    """Return lines with two columns. The right one is wrapped, and starts on a new line if the left one is too long."""
    lines = textwrap.wrap(right, width() - column, break_on_hyphens=False, break_long_words=False) or [""]
    first = " " * INDENT + left
    if len(first) > column - 2:
        return [first, *(" " * column + line for line in lines)]
    return [f"{first:{column}}{lines[0]}", *(" " * column + line for line in lines[1:])]


def wrapped(text: str) -> list[str]:
    """Wrap paragraphs to the width of the terminal."""
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += ["", *textwrap.wrap(" ".join(paragraph.split()), width(), break_on_hyphens=False)]
    return lines[1:]


def docstring_of(kind: type[Any]) -> tuple[str, list[str]]:
    """Return the text of a docstring and its examples."""
    about, _, examples = inspect.cleandoc(kind.__doc__ or "").partition("Examples:\n")
    return about.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def _examples(examples: Sequence[str]) -> list[str]:
    return ["", "Examples", *(f"  {example}" for example in examples)] if examples else []


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", " ".join(text.split()), maxsplit=1)[0]
