"""The sizes that a run chose for itself, which are written down: one that goes on, perhaps on another machine, keeps
them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from srl.api.experiment import Experiment
from srl.experiments.options.train_options import SECTION_OF, TrainOptions

PLACE = {"scheduler", "hosts"}
"""Options that give a run other cores, for which the number of actors is chosen anew."""
BLOCK = {"lanes", "ring", "horizon", "trainers"}
"""Options of which blocks are made, and a batch that nobody asked for of these."""
ACTORS = "actors"
CHOSEN = ("actors", "lanes", "ring", "horizon", "batch")


def sizes_of(experiment: Experiment) -> dict[str, int]:
    """What came out, by the options' names. Of several policies that learn, what they have in common."""
    sizes: dict[str, int] = {}
    shared: dict[str, set[int]] = {"horizon": set(), "batch": set()}
    for group in experiment.groups:
        found = group.config.sizes()
        if group.name == ACTORS and "lanes" in found:
            sizes |= {"actors": group.count, "lanes": found["lanes"], "ring": found["ring"]}
        for name in shared.keys() & found.keys():
            shared[name].add(found[name])
    return sizes | {name: found.pop() for name, found in shared.items() if len(found) == 1}


def with_sizes(
    options: TrainOptions, sizes: Mapping[str, int], before: TrainOptions, given: Collection[str] = ()
) -> TrainOptions:
    """The options of a run that goes on, with the sizes it had where they leave one open. `given` are those that the
    user gave now: what he changes is not held to sizes that came of what was there `before`."""
    changed = {name for name in given if name in SECTION_OF and options.value(name) != before.value(name)}
    anew = {*given, *(["actors"] if changed & PLACE else []), *(["batch"] if changed & BLOCK else [])}
    open_still = (name for name in CHOSEN if name in sizes and name not in anew and options.value(name) is None)
    kept: dict[str, Any] = {name: sizes[name] for name in open_still}
    return options.replace(**kept)


def with_actors(experiment: Experiment, count: int | None) -> Experiment:
    """The same with so many actors; None: with those it has."""
    if count is None:
        return experiment
    groups = (replace(group, count=count) if group.name == ACTORS else group for group in experiment.groups)
    return replace(experiment, groups=tuple(groups))
