"""Options that change during a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from srl.api.control import ChangeOption, OptionValue
from srl.api.experiment import WorkerGroup


@dataclass
class OptionChanges:
    """Changes so far. New workers start with the changed configs of `groups`; live ones get a message."""

    groups: dict[str, WorkerGroup]
    values: dict[str, OptionValue] = field(default_factory=dict)  # option -> its last value
    number: int = 0

    def change(self, name: str, value: OptionValue, strict: bool = False) -> tuple[set[str], ChangeOption]:
        """Change an option; return the names of the groups that it concerns, and the message for their workers."""
        changed = with_option(self.groups, name, value)
        self.groups.update(changed)
        self.values.pop(name, None)  # the last change is last: one option may set another, such as a schedule
        self.values[name] = value
        self.number += 1
        return set(changed), ChangeOption(name.rpartition("/")[2], value, self.number, strict)

    def check(self, name: str, value: OptionValue) -> bool:
        """Return whether this would change anything. Raises ValueError if it is not possible."""
        with_option(self.groups, name, value)
        return name not in self.values or self.values[name] != value

    def restore(self, values: Mapping[str, OptionValue], number: int = 0) -> None:
        """Apply the changes of an earlier part of the run to workers that are not yet started."""
        for name, value in values.items():
            self.change(name, value)
        self.number = number


def with_option(groups: Mapping[str, WorkerGroup], name: str, value: OptionValue) -> dict[str, WorkerGroup]:
    """Return the groups that an option concerns, with its new value. `POLICY/NAME` is an option of one policy.
    Raises ValueError if no group has the option, or if the value is invalid."""
    policy, _, option = name.rpartition("/")
    found = {}
    for group in groups.values():
        if policy in ("", group.config.committed_policy()):
            try:
                changed = group.config.with_option(option, value)
            except TypeError as error:
                raise ValueError(f"{name} cannot be {value!r}: {error}") from error
            if changed is not None:
                found[group.name] = replace(group, config=changed)
    if not found:
        known = sorted({name for group in groups.values() for name in group.config.changeable()})
        raise ValueError(
            f"{name} cannot change during this run; what can is {', '.join(known)}, and env.NAME for attributes of the "
            "environments"
        )
    return found
