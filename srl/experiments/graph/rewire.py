"""Another stream in a graph that stands already."""

from __future__ import annotations

import dataclasses
from typing import Any

from srl.api.experiment import Experiment
from srl.streams.push import PushStream
from srl.streams.request import RequestStream


def rewired(experiment: Experiment, old: PushStream | RequestStream, new: PushStream | RequestStream) -> Experiment:
    """The graph with the stream `new` wherever a worker's config holds `old`, so that all its ends change together.

    For functions that `--graph` names: a broadcast instead of a balanced stream, another capacity, another rule for
    when it is full."""
    groups = tuple(dataclasses.replace(group, config=_exchanged(group.config, old, new)) for group in experiment.groups)
    if groups == experiment.groups and old != new:
        names = ", ".join(group.name for group in experiment.groups)
        raise ValueError(f"no worker of {names} has this stream {old.name!r}; take it from their configs")
    return dataclasses.replace(experiment, groups=groups)


def _exchanged(value: Any, old: Any, new: Any) -> Any:
    """The same value, if the stream is nowhere in it."""
    if type(value) is type(old) and value == old:
        return new
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in dataclasses.fields(value):
            before = getattr(value, field.name)
            after = _exchanged(before, old, new)
            if after is not before:
                changes[field.name] = after
        return dataclasses.replace(value, **changes) if changes else value
    if isinstance(value, tuple):
        items = tuple(_exchanged(item, old, new) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
