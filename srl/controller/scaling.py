"""How many workers a group shall have: what was asked for, and whether it can be. Decisions only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from srl.api.experiment import Resources, WorkerGroup
from srl.api.scheduler import MAX_WORKERS
from srl.base.errors import nearest


def planned(groups: Mapping[str, WorkerGroup], name: str, count: int, relative: bool) -> WorkerGroup:
    """The group as it shall be. Raises ValueError with what is wrong."""
    group = groups.get(name)
    if group is None:
        raise ValueError(f"no group {name!r}{nearest(name, groups)}")
    if not group.scalable:
        raise ValueError(f"{name} cannot be resized while the run goes on; resume it with another number instead")
    wanted = group.count + count if relative else count
    if wanted < 1:
        raise ValueError(f"{name} needs at least one worker; {wanted} were asked for")
    check_total(sum(g.count for g in groups.values()) - group.count + wanted)
    return resized(group, wanted)


def resized(group: WorkerGroup, count: int) -> WorkerGroup:
    """Of those who stand and fall together each knows how many they are."""
    if group.restart.together and count != group.count:
        return replace(group, config=group.config.resized(count), count=count)
    return replace(group, count=count)


def everybody(groups: Iterable[WorkerGroup]) -> list[tuple[str, Resources]]:
    """All workers by name, and what each needs. Raises ValueError if they are too many."""
    named = [(f"{group.name}/{index}", group.resources) for group in groups for index in range(group.count)]
    check_total(len(named))
    return named


def check_total(total: int) -> None:
    if total > MAX_WORKERS:
        raise ValueError(f"a run has at most {MAX_WORKERS} workers; {total} were asked for")
