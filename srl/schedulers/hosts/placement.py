"""Which host a worker goes to. Decisions only; nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from srl.api.experiment import Resources

EPSILON = 1e-6


class NoRoom(ValueError):
    """No host could ever hold this worker."""


@dataclass
class Room:
    """What one host offers, and what is taken of it."""

    host: str
    cpus: float
    gpus: float = 0.0
    memory_mb: int = 0
    """0: unknown, anything goes."""
    used_cpus: float = 0.0
    used_gpus: float = 0.0
    used_mb: int = 0
    labels: tuple[str, ...] = ()
    closed: bool = False
    """Takes nobody in any more."""

    @property
    def free_share(self) -> float:
        return 1.0 - self.used_cpus / max(self.cpus, EPSILON)

    def take(self, wanted: Resources, sign: int = 1) -> None:
        self.used_cpus += sign * wanted.cpu
        self.used_gpus += sign * wanted.gpu
        self.used_mb += sign * wanted.memory_mb

    def give_back(self, wanted: Resources) -> None:
        self.take(wanted, -1)

    def holds(self, wanted: Resources, *, empty: bool = False, stretch: bool = False) -> bool:
        """Is there room, or would there be on an `empty` host? With `stretch` CPUs may be shared."""
        busy = 0 if empty else 1
        if self.closed:
            return False
        if wanted.node and not any(fnmatchcase(name, wanted.node) for name in (self.host, *self.labels)):
            return False
        if not stretch and wanted.cpu > self.cpus - busy * self.used_cpus + EPSILON:
            return False
        if wanted.gpu > self.gpus - busy * self.used_gpus + EPSILON:
            return False
        return not self.memory_mb or wanted.memory_mb <= self.memory_mb - busy * self.used_mb


def choose(rooms: list[Room], wanted: Resources, former: str = "", stretch: bool = False) -> Room | None:
    """Where a worker goes: to its former host if that has room, else to the one with the largest share of free CPUs,
    those without a GPU or a label first if it asks for none. None: wait until there is room."""
    for shared in (False, True) if stretch else (False,):
        fitting = [room for room in rooms if room.holds(wanted, stretch=shared)]
        for room in fitting:
            if room.host == former:
                return room
        if fitting:
            return max(fitting, key=lambda room: (_leaves_to_others(room, wanted), room.free_share))
    return None


def _leaves_to_others(room: Room, wanted: Resources) -> int:
    """Of GPUs and labels, which others may need this host for."""
    return (wanted.gpu > 0 or not room.gpus) + (wanted.node != "" or not room.labels)


def check(rooms: list[Room], wanted: Resources, who: str) -> None:
    """Raises NoRoom if not even empty hosts could hold it."""
    if not any(room.holds(wanted, empty=True) for room in rooms):
        offers = "; ".join(
            f"{room.host}: {room.cpus:g} CPUs, {room.gpus:g} GPUs"
            + (f", {room.memory_mb} MB" if room.memory_mb else "")
            for room in rooms
        )
        raise NoRoom(f"{who} can never be placed: it needs {describe(wanted)}; hosts offer {offers or 'nothing'}")


def check_all(rooms: list[Room], wanted: list[tuple[str, Resources]]) -> None:
    """Raises NoRoom if they do not all fit together. First come, first placed, as it will be done."""
    trial = [replace(room) for room in rooms]
    for who, resources in wanted:
        check(trial, resources, who)
    for who, resources in wanted:
        room = choose(trial, resources)
        if room is None:
            total = sum(resources.cpu for _, resources in wanted)
            raise NoRoom(
                f"no room is left for {who} ({describe(resources)}): {len(wanted)} workers want {total:g} CPUs, and "
                f"{len(rooms)} hosts offer {sum(room.cpus for room in rooms):g}; ask for fewer workers or more hosts"
            )
        room.take(resources)


def relief(rooms: list[Room], placed: list[tuple[str, Resources]]) -> list[int]:
    """Which workers, given with their hosts, move: from hosts whose CPUs are shared, as far as others have room."""
    trial = {room.host: replace(room) for room in rooms}
    moving = []
    for index, (host, wanted) in enumerate(placed):
        crowded = trial.get(host)
        if crowded is None or crowded.used_cpus <= crowded.cpus + EPSILON:
            continue
        room = choose([other for other in trial.values() if other is not crowded], wanted)
        if room is not None:
            room.take(wanted)
            crowded.give_back(wanted)
            moving.append(index)
    return moving


def lacking(rooms: list[Room], wanted: Resources, stretch: bool = False) -> str:
    """Why a worker waits although there are hosts; empty if one of them has room."""
    rooms = [room for room in rooms if not room.closed]
    if not rooms or any(room.holds(wanted, stretch=stretch) for room in rooms):
        return ""
    if not any(room.holds(Resources(0, node=wanted.node), empty=True) for room in rooms):
        return f"no host that is left is named {wanted.node}"
    for need in (Resources(0, gpu=wanted.gpu), Resources(0, memory_mb=wanted.memory_mb)):
        if not any(room.holds(need, empty=True) for room in rooms):
            return f"no host that is left offers {describe(need)}"
    return f"no host that is left has room for {describe(wanted)}"


def describe(wanted: Resources) -> str:
    counts = {"CPU": wanted.cpu, "GPU": wanted.gpu}
    parts = [f"{count:g} {what}{'' if count == 1 else 's'}" for what, count in counts.items() if count]
    if wanted.memory_mb:
        parts.append(f"{wanted.memory_mb} MB")
    if wanted.node:
        parts.append(f"a host named {wanted.node}")
    return ", ".join(parts)
