"""What a run asks of Ray, and whether its nodes could ever hold it. Decisions only; nobody is asked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from srl.schedulers.engines.slurm_commands import Component

SLIVER = 0.001
"""Of a custom resource that marks nodes: asking for it says where, not how much."""
EPSILON = 1e-6
MAX_TRIES = 10_000
"""To fit bundles of different shapes beside each other; after that it is left to Ray."""
MAX_DEPTH = 200


class RayError(RuntimeError):
    """Ray is not there, or has no place for us; the message says what."""


def bundle(part: Component) -> dict[str, float]:
    """What a host of this kind reserves."""
    wanted: dict[str, float] = {"CPU": part.cpus}
    if part.gpus:
        wanted["GPU"] = part.gpus
    if part.memory_mb:
        wanted["memory"] = part.memory_mb * 2**20
    if part.constraint:
        wanted[part.constraint] = SLIVER
    return wanted


def check_room(bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]) -> None:
    """Raises RayError if Ray could not even place these when nobody else used its nodes: it would wait for ever."""
    offers = "; ".join(map(described, nodes))
    for wanted in bundles:
        room = sum(_times(wanted, node) for node in nodes)
        if not room:
            raise RayError(f"no node of Ray could ever hold {described(wanted)}; there are {offers or 'none'}")
        as_large = sum(_times(wanted, other) > 0 for other in bundles)  # each of them takes a place of this size
        if as_large > room:
            raise RayError(
                f"this run wants {as_large} hosts with {described(wanted)} or more, and Ray's nodes have room for "
                f"{room}: {offers}; ask for fewer workers"
            )
    for key in {key: None for wanted in bundles for key in wanted}:
        total, there = (sum(one.get(key, 0.0) for one in all_of_them) for all_of_them in (bundles, nodes))
        if total > there + EPSILON:
            raise RayError(
                f"this run wants {described({key: total})} on {len(bundles)} hosts, and Ray's {len(nodes)} nodes have "
                f"{described({key: there})}; ask for fewer workers"
            )
    if not _fit(bundles, nodes):
        shapes = "; ".join(map(described, bundles))
        raise RayError(
            f"the {len(bundles)} hosts of this run ({shapes}) do not fit beside each other on Ray's nodes: {offers}; "
            "ask for fewer workers"
        )


def _fit(bundles: Sequence[Mapping[str, float]], nodes: Sequence[Mapping[str, float]]) -> bool:
    """Is there a way to place them? Tried with the largest first; what would take too long to find out is believed."""
    keys = {key for wanted in bundles for key in wanted}
    rooms = [{key: node.get(key, 0.0) for key in keys} for node in nodes]
    ordered = sorted(bundles, key=lambda wanted: [wanted.get(key, 0.0) for key in ("GPU", "CPU", "memory")])
    tries = MAX_TRIES

    def place(left: int) -> bool:
        nonlocal tries
        if not left:
            return True
        wanted = ordered[left - 1]
        fruitless = []
        for room in rooms:
            if not _times(wanted, room) or room in fruitless:
                continue
            tries -= 1
            if tries < 0:
                return True
            before = dict(room)
            room.update({key: room[key] - amount for key, amount in wanted.items()})
            if place(left - 1):
                return True
            room.update(before)
            fruitless.append(before)  # nor would it help to try a node with just as much left
        return False

    return len(ordered) > MAX_DEPTH or place(len(ordered))


def _times(wanted: Mapping[str, float], there: Mapping[str, float]) -> int:
    """How often one fits into the other."""
    return min(int(there.get(key, 0.0) / amount + EPSILON) for key, amount in wanted.items() if amount)


def described(resources: Mapping[str, float]) -> str:
    """`2 CPU + 1 GPU + 4000 MB`"""
    hidden = ("memory", "object_store_memory")
    named = [
        f"{amount:g} {key}" for key, amount in resources.items() if not key.startswith("node:") and key not in hidden
    ]
    if resources.get("memory"):
        named.append(f"{resources['memory'] / 2**20:.0f} MB")
    return " + ".join(named) or "nothing"
