"""`srl help` and `srl recipes`: groups of options, single options, algorithms and recipes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from srl.base.errors import did_you_mean
from srl.cli.flags import algorithm_options, run_options
from srl.cli.help import (
    HelpText,
    block,
    command_help,
    docstring_of,
    more_help,
    overview,
    row,
    section_help,
    shown_value,
    wrapped,
)
from srl.cli.parser import Option, flag, options_of, positional
from srl.experiments.options.algorithms import ALGORITHMS, algorithm_class
from srl.experiments.options.aliases import SAME, advice, as_flag
from srl.experiments.options.keywords import ALGO
from srl.experiments.options.setting_texts import parse_pairs
from srl.experiments.options.train_options import SECTION_OF, SECTIONS, TrainOptions
from srl.networks.options import NetworkOptions

PAGES = {
    "run": "options.md",
    "workers": "options.md",
    "agents": "howto/multi-agent.md",
    "evaluation": "howto/results.md",
    "checkpoints": "howto/resume.md",
    "cluster": "howto/cluster.md",
    "network": "howto/networks.md",
    "replay": "howto/replay.md",
    "offline": "howto/offline.md",
    "streams": "howto/debug.md",
    "algorithms": "algorithms.md",
}
"""Group of options -> page in docs/."""
NETWORK, REPLAY, OFFLINE, STREAMS = "network", "replay", "offline", "streams"
MIXED = {
    NETWORK: ("ppo", tuple(f"{ALGO}{each.name}" for each in dataclasses.fields(NetworkOptions))),
    REPLAY: (
        "sac",
        (
            *("replay", "replay_workers", "replay_dir", "save_replay"),
            *("algo.replay_size", "algo.batch_size", "algo.learning_starts", "algo.updates_per_decision"),
            *("algo.n_step", "algo.prioritized", "algo.priority_alpha", "algo.priority_beta"),
        ),
    ),
    OFFLINE: ("dagger", ("data", "eval_every", "algo.expert", "algo.expert_share", "algo.expert_until")),
    STREAMS: ("ppo", ("record_streams", "record_mb", "journal", "checkpoint_seconds", "keep_last")),
}
"""Topic with options of the run and of algorithms -> algorithm whose defaults are shown, and options."""
ABOUT = {
    NETWORK: "Networks, with the defaults of ppo. `srl help ALGORITHM` shows those of another algorithm, which may not "
    "have all of these options.",
    REPLAY: "Replay of algorithms that learn from past decisions, with the defaults of sac. `srl help ALGORITHM` shows "
    "those of another algorithm. The command `srl replay` makes recorded updates again: `srl replay --help`.",
    OFFLINE: "Learning from recorded decisions (--data, with bc, iql or td3bc) or from an expert (--expert, with "
    "dagger). `srl collect` records them; `srl help bc` shows the options of an algorithm.",
    STREAMS: "Recorded streams: the batches that reached the trainers, from which `srl replay` makes the same updates "
    "again.",
}
ALSO = {"self-play": "agents", "roles": "agents", "eval": "evaluation", "sizes": "workers", "recipe": "recipes"}
ALSO |= {"networks": NETWORK, "data": OFFLINE}


@dataclass(frozen=True)
class Help:
    """Explain a command or a group of options.

    Examples:
      srl help train
      srl help ppo
      srl help cluster
      srl help lanes
      srl help recipes
      srl help entropy
    """

    topic: tuple[str, ...] = positional("TOPIC", ())
    """A command, an algorithm, a group of options (run, workers, agents, evaluation, checkpoints, cluster, network,
    replay, offline, streams), an option, `recipes`, or the name of a recipe. Any other words are looked for in the
    names of all options."""

    def run(self) -> int:
        return HelpText(topic_help("-".join(self.topic))).run()


@dataclass(frozen=True)
class Recipes:
    """List the recipes: tuned options for families of environments. With an environment, show the recipe that `srl
    train` uses for it, with all values and their reasons.

    Examples:
      srl recipes
      srl recipes Hopper-v5
      srl recipes mujoco
    """

    env: str = positional("ENV", "")
    """Environment, as for `srl train`, or the name of a recipe."""
    env_arg: tuple[str, ...] = flag("NAME=VALUE", (), repeated=True)
    """Option of the environment; can be repeated."""

    def run(self) -> int:
        from srl.experiments.recipes.single_agent import RECIPES

        if self.env and self.env not in {recipe.name for recipe in RECIPES}:
            return HelpText(_recipe_help(self._recipe())).run()
        return HelpText(topic_help(self.env or "recipes")).run()

    def _recipe(self) -> Any:
        from srl.environments.registry import lanes_config
        from srl.experiments.recipes.apply import recipe_for

        environment = lanes_config(self.env, **parse_pairs(self.env_arg))
        lanes = environment.build(1)
        lanes.close()
        return recipe_for(environment, lanes.spec)


def topic_help(topic: str) -> str:
    """Return the help for a topic, or the list of topics if the name is empty."""
    from srl.cli.main import COMMANDS, command_class
    from srl.experiments.recipes.single_agent import RECIPES

    name = ALSO.get(topic, topic)
    recipes = {recipe.name: recipe for recipe in RECIPES}
    if not name:
        return "\n".join([overview(), *more_help("train")])
    if name in SECTIONS:
        return "\n".join(section_help(name, run_options(TrainOptions(), ALGORITHMS[0]))[1:])
    if name in MIXED:
        algo, names = MIXED[name]
        members = {option.name: option for option in run_options(TrainOptions(), algo)}
        text = wrapped(f"{ABOUT[name]} See docs/{PAGES[name]}.")
        return "\n".join([*text, "", *block("", [members[each] for each in names])])
    if name in ALGORITHMS:
        about, _ = docstring_of(algorithm_class(name))
        options = algorithm_options(name, TrainOptions())
        return "\n".join([*wrapped(f"{name}: {about}"), *block(f"Options of {name}", options)])
    if name == "recipes":
        rows = [line for recipe in RECIPES for line in row(recipe.name, recipe.about)]
        return "\n".join(
            [
                "Recipes",
                *rows,
                "",
                "`srl recipes ENV` and `srl help NAME` show the options of a recipe and their reasons.",
            ]
        )
    if name in recipes:
        return _recipe_help(recipes[name])
    if name in COMMANDS:
        return command_help(command_class(name), name, [], everything=False)
    owners = _options_by_name()
    written = name.removeprefix(ALGO).replace("-", "_")
    option = written if written in owners else SAME.get(written, written)
    if option in owners:
        return _option_help(owners[option])
    if advised := advice(written, flags=True):
        raise ValueError(advised)
    if named := _options_named(written.split("_"), owners):
        return "\n".join([f"Options whose names contain {topic!r}", *named, "", "`srl help OPTION` shows one of them."])
    known = [*COMMANDS, *SECTIONS, *MIXED, *ALGORITHMS, *ALSO, *recipes, "recipes"]
    known += [as_flag(each).removeprefix("--") for each in owners]
    close = did_you_mean(topic, known, cutoff=0.7)
    raise ValueError(f"no help on {topic!r}{close or '; `srl help` lists the topics'}")


@functools.cache
def _options_by_name() -> dict[str, dict[str, Option]]:
    """Return each option with its owners: a section of a run's options, or else algorithms, or else commands."""
    from srl.cli.main import COMMANDS, command_class

    found: dict[str, dict[str, Option]] = {}
    for option in run_options(TrainOptions(), ALGORITHMS[0]):
        if not option.name.startswith(ALGO):
            found[option.name] = {SECTION_OF.get(option.name, "run"): option}
    for algo in ALGORITHMS:
        for option in algorithm_options(algo, TrainOptions()):
            found.setdefault(option.name.removeprefix(ALGO), {})[algo] = option
    others: dict[str, dict[str, Option]] = {}
    for command in COMMANDS:
        for option in options_of(command_class(command)):
            others.setdefault(option.name, {})[command] = option
    return {**others, **found}


def _options_named(words: list[str], owners: Mapping[str, dict[str, Option]]) -> list[str]:
    """Return a line for each option whose name contains all of the words, with the first sentence of its help."""
    lines: list[str] = []
    for name, each in sorted(owners.items()):
        if words and all(word in name.split("_") for word in words):
            option = next(iter(each.values()))
            lines += row(option.flag, " ".join(option.text.split()).partition(". ")[0].removesuffix("."))
    return lines


def _option_help(owners: dict[str, Option]) -> str:
    """Return the help for one option, given by its owners: a section, algorithms or commands."""
    first, option = next(iter(owners.items()))
    if first in SECTIONS:
        place = [f"Option of a run, in the group {first}: `srl help {first}`, docs/{PAGES[first]}."]
    elif first not in ALGORITHMS:
        place = [f"Option of {', '.join(f'`srl {command}`' for command in owners)}."]
    else:
        place = [f"Option of {', '.join(owners)}: `srl help ALGORITHM`, docs/{PAGES['algorithms']}."]
        group = next((topic for topic, (_, names) in MIXED.items() if option.name in names), "")
        if group:
            place = [f"{place[0]} Also in `srl help {group}`, docs/{PAGES[group]}."]
        defaults: dict[str, list[str]] = {}
        for algo, each in owners.items():
            defaults.setdefault(shown_value(each.default) or "none", []).append(algo)
        if len(defaults) > 1:
            option = dataclasses.replace(option, default=None)
            listed = (f"{value} ({', '.join(algorithms)})" for value, algorithms in defaults.items())
            place.append(f"Defaults: {'; '.join(listed)}.")
    return "\n".join([*block("", [option]), *(line for text in place for line in ("", *wrapped(text)))])


def _recipe_help(recipe: Any) -> str:
    lines = [*wrapped(f"Recipe {recipe.name}: {recipe.about}")]
    scopes = recipe.scopes()
    for scope, settings in scopes:
        lines += ["", f"For {scope}"]
        for setting in settings:
            lines += row(f"{setting.option} {shown_value(setting.value)}", setting.why, column=40)
    if not scopes:
        lines += ["", "The defaults of all options."]
    return "\n".join(lines)
