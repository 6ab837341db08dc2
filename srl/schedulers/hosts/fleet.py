"""The hosts of a run as its controller sees them: who joined, who is lost, and who gets parameters from whom."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union, get_args

from srl.api.scheduler import OrphanWorker
from srl.api.transport import Channel, ChannelClosed, Listener, Message
from srl.base.tree import Array
from srl.schedulers.hosts.messages import (
    AGENT_SILENCE,
    BEAT_SECONDS,
    Beat,
    Follow,
    FromAgent,
    Gone,
    Heard,
    Join,
    Leave,
    LogText,
    Refused,
    Rejoin,
    Relay,
    Welcome,
    own_version,
)
from srl.schedulers.hosts.placement import Room
from srl.schedulers.hosts.version_archive import KeepUp
from srl.workers.doorbells import Doorbells

FROM_AGENT = get_args(FromAgent)
FAN_OUT = 4
"""Hosts that get parameters from one other."""
JOIN_SECONDS = 10.0
LEAVE_SECONDS = 3.0


@dataclass(frozen=True)
class Hosting:
    """What agents are told when they join."""

    run: str
    secret: bytes = field(repr=False)
    preload: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    encrypt: bool = False
    headless: float = 0.0
    """Seconds that agents go on without a controller."""
    keep_up: KeepUp | None = None
    """How hosts keep past versions of policies, if they do."""
    attach: Mapping[str, int] | None = None
    """Agents of a predecessor come back: address of its relay -> the last of its news that are known. They bring the
    run's secret, so nobody else is let in before. None: those that were lost begin anew."""


@dataclass
class Host:
    """A host that joined."""

    name: str
    channel: Channel
    room: Room
    ahead_ns: int
    """How much our clock is ahead of its."""
    heard: float
    relay: str = ""
    follows: dict[str, str] = field(default_factory=dict)
    roster: Any = None
    """Where the figures of its workers go, as it listed them last."""
    states: dict[str, int] = field(default_factory=dict)
    """Committed states that it was given: policy -> version."""
    news: int = 0
    """The number of the last that came, and of the last that are written down."""
    safe: int = 0


@dataclass(frozen=True)
class Joined:
    host: str


@dataclass(frozen=True)
class Returned:
    """A host of a predecessor is back, and its workers with it."""

    host: str
    workers: Sequence[OrphanWorker]


@dataclass(frozen=True)
class JoinRefused:
    """A host was turned away."""

    text: str


@dataclass(frozen=True)
class Lost:
    host: str
    reason: str


@dataclass(frozen=True)
class Word:
    """A host said something that is not about joining or parameters."""

    host: str
    message: Any
    arrays: Sequence[Array]


News = Union[Joined, Returned, JoinRefused, Lost, Word]


def tree(source: str, hosts: Sequence[str]) -> dict[str, str]:
    """Who gets a policy's parameters from whom: host -> host. The source leads, everybody serves at most FAN_OUT."""
    line = [source, *sorted(host for host in hosts if host != source)]
    return {host: line[(number - 1) // FAN_OUT] for number, host in enumerate(line) if number}


class Fleet:
    def __init__(
        self,
        hosting: Hosting,
        policies: Sequence[str],
        listener: Listener,
        gifts: Callable[[], Iterable[tuple[Message, Sequence[Array]]]] = tuple,
    ) -> None:
        """`gifts` are for hosts that join, before they hear of anything else."""
        self.hosts: dict[str, Host] = {}
        self._hosting = hosting
        self._policies = list(policies)
        self._listener = listener
        self._gifts = gifts
        self._strangers: dict[int, tuple[Channel, float]] = {}
        self._early: list[tuple[Channel, Join, int]] = []  # who came while others come back
        self._bells = Doorbells()
        self._bells.watch(listener)
        self._sources: dict[str, str] = {}
        self._beaten = 0.0
        self._news: list[News] = []

    def poll(self, timeout: float) -> list[News]:
        ready = self._bells.wait(0.0 if self._news else timeout)
        now = time.monotonic()
        while (channel := self._listener.accept()) is not None:
            self._bells.watch(channel)
            self._strangers[id(channel)] = (channel, now + JOIN_SECONDS)
        for key, (channel, deadline) in list(self._strangers.items()):
            self._meet(key, channel, now > deadline)
        beat = now - self._beaten > BEAT_SECONDS
        for host in list(self.hosts.values()):
            if beat or host.channel.fileno() in ready:
                self._hear(host, now)
        if beat:
            self._beaten = now
            for host in list(self.hosts.values()):
                self.send(host.name, Beat(safe=host.safe))
        news, self._news = self._news, []
        return news

    def _meet(self, key: int, channel: Channel, late: bool) -> None:
        try:
            received = channel.receive()
            if received is None and not late:
                return
            if received is None or not isinstance(received[0], (Join, Rejoin)):
                raise ChannelClosed("does not join")
        except ChannelClosed:
            channel.close()
            del self._strangers[key]
            return
        del self._strangers[key]
        message = received[0]
        join = message.join if isinstance(message, Rejoin) else message
        ahead_ns = time.monotonic_ns() - join.now_ns
        if join.version != own_version():
            text = (
                f"host {join.host} has srl {join.version}, this run has {own_version()}; install the same on all hosts"
            )
            self._turn_away(channel, text)
            self._news.append(JoinRefused(text))
        elif isinstance(message, Join):
            if self._hosting.attach is None:
                self._let_in(channel, join, ahead_ns)
            else:  # the run's secret is not known yet, nor whose names are taken
                self._early.append((channel, join, ahead_ns))
        elif self._hosting.attach is None or message.run != self._hosting.run or join.host in self.hosts:
            self._turn_away(channel, "the workers of this host were replaced; join anew")
        else:
            self._hosting = replace(self._hosting, secret=message.secret)
            self._let_in(channel, join, ahead_ns, message)

    def _let_in(self, channel: Channel, join: Join, ahead_ns: int, returns: Rejoin | None = None) -> None:
        name, hosting = self._unique(join.host), self._hosting
        room = Room(name, join.cpus, join.gpus, join.memory_mb, labels=tuple(join.labels))
        self.hosts[name] = host = Host(name, channel, room, ahead_ns, time.monotonic())
        preload, path = list(hosting.preload), list(hosting.path)
        self.send(
            name,
            Welcome(
                hosting.run, name, hosting.secret, self._policies, preload, path, hosting.encrypt, hosting.headless
            ),
        )
        if returns is None:
            for message, arrays in self._gifts():
                self.send(name, message, arrays)
        elif name in self.hosts:
            host.relay = returns.relay
            host.news = host.safe = (hosting.attach or {}).get(host.relay, 0)
            self._news.append(Returned(name, returns.workers))
            self._direct()
        self._hear(host, time.monotonic())  # it may have said more already, and does not ring again

    def _turn_away(self, channel: Channel, text: str) -> None:
        with contextlib.suppress(ChannelClosed):
            channel.send(Refused(text))
        channel.close()

    def _unique(self, host: str) -> str:
        host = "".join(c if c.isalnum() or c in "._-" else "-" for c in host)[:64] or "host"
        names = (host, *(f"{host}-{number}" for number in range(2, len(self.hosts) + 3)))
        return next(name for name in names if name not in self.hosts)

    def _hear(self, host: Host, now: float) -> None:
        try:
            while (received := host.channel.receive()) is not None:
                host.heard = now
                message, arrays, _ = received
                if isinstance(message, Relay):
                    host.relay = message.address
                    self._news.append(Joined(host.name))
                    self._direct()
                elif isinstance(message, (Heard, Gone)):
                    if message.number > host.news:  # others are repeated, and known from our predecessor
                        host.news = message.number
                        self._news.append(Word(host.name, message, arrays))
                elif isinstance(message, FROM_AGENT):
                    self._news.append(Word(host.name, message, arrays))
                else:
                    raise ChannelClosed("does not speak as an agent")
            host.channel.flush()
            if now - host.heard > AGENT_SILENCE:
                raise ChannelClosed(f"nothing was heard for {AGENT_SILENCE:.0f} s")
        except ChannelClosed as error:
            self._lose(host, str(error))

    def send(self, name: str, message: Any, arrays: Sequence[Array] = ()) -> None:
        """To a host that still lives; never blocks."""
        host = self.hosts.get(name)
        if host is not None:
            try:
                host.channel.send(message, arrays)
            except ChannelClosed as error:
                self._lose(host, str(error))

    def _lose(self, host: Host, reason: str) -> None:
        if self.hosts.pop(host.name, None) is not None:
            host.channel.close()
            if self._hosting.attach is not None:  # should it come back again: this much of what it repeats is known
                self._hosting = replace(self._hosting, attach={**self._hosting.attach, host.relay: host.news})
            self._news.append(Lost(host.name, reason))
            self._direct()

    def told(self) -> dict[str, int]:
        """Agent, by the address of its relay -> the number of its last news."""
        return {host.relay: host.news for host in self.hosts.values()}

    def written_down(self, told: Mapping[str, int]) -> None:
        """A successor would know of these: agents may forget them."""
        for host in self.hosts.values():
            host.safe = told.get(host.relay, host.safe)

    def close_to_returners(self) -> None:
        """Whoever comes back from now on finds its workers replaced; who came to join meanwhile is let in."""
        self._hosting = replace(self._hosting, attach=None)
        early, self._early = self._early, []
        for channel, join, ahead_ns in early:
            self._let_in(channel, join, ahead_ns)

    def lead(self, sources: Mapping[str, str]) -> None:
        """These policies are trained on these hosts: the others get their parameters from there."""
        self._sources.update(sources)
        self._direct()

    def _direct(self) -> None:
        ready = [host.name for host in self.hosts.values() if host.relay]
        for policy, source in self._sources.items():
            if source not in ready:
                continue  # until the trainer has a new place
            above = tree(source, ready)
            for name in ready:
                address = self.hosts[above[name]].relay if name in above else ""
                host = self.hosts.get(name)
                if host is not None and host.follows.get(policy) != address:
                    host.follows[policy] = address
                    self.send(name, Follow(policy, address))

    def close(self) -> list[Word]:
        """Send everybody home and wait until they have left; returns the last logs."""
        logs: list[Word] = []
        for name in list(self.hosts):
            self.send(name, Leave())
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.hosts and time.monotonic() < deadline:
            self._bells.wait(0.05)
            for host in list(self.hosts.values()):
                self._hear(host, time.monotonic())
        logs += [news for news in self._news if isinstance(news, Word) and isinstance(news.message, LogText)]
        for channel, _ in self._strangers.values():
            channel.close()
        for channel, _, _ in self._early:
            channel.close()
        for host in self.hosts.values():
            host.channel.close()
        self.hosts.clear()
        self._listener.close()
        self._bells.close()
        return logs
