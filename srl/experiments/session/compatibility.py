"""May a run go on with these options? Found out before anything is written, and told field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from srl.base.config import from_data
from srl.experiments.session.checkpointing import Restored


def check_compatible(before: Mapping[str, Any], now: Mapping[str, Any], restored: Restored) -> None:
    """Raise ValueError, naming the field and both values, if what was learned does not fit what is asked for.

    `before` and `now` describe the policies, as `config.json` does: algorithm, observation and action space.
    """
    if set(before) != set(now):
        raise ValueError(
            f"cannot go on: the run has the policies {', '.join(sorted(before))}; with the roles asked for there would "
            f"be {', '.join(sorted(now))}"
        )
    for policy, described in now.items():
        check_spaces(policy, before[policy], described)
        changed = list(differences(before[policy]["algorithm"], described["algorithm"], ""))
        if changed:
            _try(policy, described, restored, changed)


def check_spaces(policy: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """The same for what a policy sees and does, without which it is of no use at all."""
    for what in ("observation", "action"):
        found = sorted(differences(before[what], now[what], f"{what} space"), key=lambda one: "shape" not in one[0])
        for field, old, new in found:  # the first one; shapes say more than bounds
            raise ValueError(
                f"policy {policy!r} does not fit: it was trained with {field} {old}; the environment now has {new}"
            )


def _try(policy: str, described: Any, restored: Restored, changed: list[tuple[str, Any, Any]]) -> None:
    """Most options may change, e.g. the learning rate; only a trainer knows whether its old state fits still."""
    algorithm, observation, action = (from_data(described[key]) for key in ("algorithm", "observation", "action"))
    try:
        trainer = algorithm.build_trainer(observation, action, 0)
        if (wanted := sorted(trainer.state())) != (found := sorted(restored.states[policy])):
            raise ValueError(f"a state of {wanted} is needed, found {found}")
        trainer.restore(restored.states[policy])
    except (ValueError, KeyError) as error:
        told = "; ".join(f"{field} was {old}, now {new}" for field, old, new in changed)
        raise ValueError(
            f"cannot go on with policy {policy!r}: its checkpoint does not fit. {told} ({error})"
        ) from error


def differences(old: Any, new: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Fields of two configs as plain data that differ: name, former and present value."""
    if _is_config(old) and _is_config(new) and old["type"] == new["type"]:
        for name in sorted({*old["fields"], *new["fields"]}):
            inner = f"{place}.{name}" if place else name
            yield from differences(old["fields"].get(name), new["fields"].get(name), inner)
    elif isinstance(old, Mapping) and isinstance(new, Mapping) and not _is_config(old) and not _is_config(new):
        for name in sorted({*old, *new}):
            yield from differences(old.get(name), new.get(name), f"{place}.{name}" if place else name)
    elif old != new:
        yield place or "algorithm", _short(old), _short(new)


def _is_config(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"type", "fields"}


def _short(value: Any) -> Any:
    """A config as it is told: whole if it is small, as a space is, else its name."""
    if not _is_config(value):
        return value
    name, whole = value["type"].rpartition(":")[2], str(value["fields"])
    return f"{name}({whole})" if len(whole) < 100 else name
