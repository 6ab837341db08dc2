"""Compatibility of a checkpoint with the options of a resumed run, checked before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from srl.base.config import from_data, is_config
from srl.experiments.session.checkpointing import Restored


def check_compatible(before: Mapping[str, Any], now: Mapping[str, Any], restored: Restored) -> None:
    """Raise ValueError with the field and both values if the checkpoint does not fit the options.

    `before` and `now` are descriptions of the policies as in config.json: algorithm, observation and action space.
    """
    if set(before) != set(now):
        raise ValueError(
            f"cannot resume: the run has the policies {', '.join(sorted(before))}; with the given roles it "
            f"would have {', '.join(sorted(now))}"
        )
    for policy, described in now.items():
        check_spaces(policy, before[policy], described)
        changed = list(differences(before[policy]["algorithm"], described["algorithm"], ""))
        if changed:
            _check_state(policy, described, restored, changed)


def check_spaces(policy: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise ValueError if the observation or action space of a policy has changed."""
    for what in ("observation", "action"):
        found = sorted(differences(before[what], now[what], f"{what} space"), key=lambda one: "shape" not in one[0])
        for field, old, new in found:  # report the first; shapes are more telling than bounds
            raise ValueError(
                f"policy {policy!r} does not fit: it was trained with {field} {old}; the environment now has {new}"
            )


def _check_state(policy: str, described: Any, restored: Restored, changed: list[tuple[str, Any, Any]]) -> None:
    """Raise ValueError if a new trainer cannot restore the state: only a trainer knows which options may change."""
    algorithm, observation, action = (from_data(described[key]) for key in ("algorithm", "observation", "action"))
    try:
        trainer = algorithm.build_trainer(observation, action, 0)
        if (expected := sorted(trainer.state())) != (found := sorted(restored.states[policy])):
            raise ValueError(f"expected a state of {expected}, found {found}")
        trainer.restore(restored.states[policy])
    except (ValueError, KeyError) as error:
        summary = "; ".join(f"{field} was {old}, now {new}" for field, old, new in changed)
        raise ValueError(
            f"cannot resume policy {policy!r}: its checkpoint does not fit. {summary} ({error})"
        ) from error


def differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, old value and new value of each field that differs between two configs in plain data."""
    if is_config(old) and is_config(new) and old["type"] == new["type"]:
        for name in sorted({*old["fields"], *new["fields"]}):
            inner = f"{path}.{name}" if path else name
            yield from differences(old["fields"].get(name), new["fields"].get(name), inner)
    elif isinstance(old, Mapping) and isinstance(new, Mapping) and not is_config(old) and not is_config(new):
        for name in sorted({*old, *new}):
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path or "algorithm", _short(old), _short(new)


def _short(value: Any) -> Any:
    """Shorten a config for a message: include its fields if they are short (e.g. a space), else only its name."""
    if not is_config(value):
        return value
    name, fields = value["type"].rpartition(":")[2], str(value["fields"])
    return f"{name}({fields})" if len(fields) < 100 else name
