"""What a controller and the agents of its hosts say to each other."""

from __future__ import annotations

from typing import Any, Union

import srl
from srl.api.control import FromWorker, ToWorker
from srl.api.scheduler import OrphanWorker
from srl.api.transport import Message
from srl.api.worker import Place
from srl.base.wire import Codec

AGENTS = "agents"
"""Stands for the run's name in the handshake of agents: they do not know yet which run it is."""
MAX_STATE_BYTES = 1 << 34
BEAT_SECONDS = 0.25
CONTROLLER_SILENCE = 12.0
"""An agent that hears nothing for so long ends its workers: they are about to be replaced."""
AGENT_SILENCE = 15.0
"""A host that says nothing for so long is gone."""


USAGE = ("pid", "cpu_percent", "rss_mb", "stopped")


class Join(Message, frozen=True):
    """Agent: my host is at your service."""

    host: str
    version: str
    """Of srl."""
    now_ns: int
    """By its own clock."""
    cpus: float
    gpus: float
    memory_mb: int
    labels: list[str] = []
    """What a group may ask for as its `node`, beside the host's name."""


class Rejoin(Message, frozen=True):
    """Agent: your predecessor died, and these workers go on. If they died meanwhile, `Gone` follows."""

    join: Join
    run: str
    secret: bytes
    """Of the run: agents that join later need it, too."""
    relay: str
    workers: list[OrphanWorker]


class Welcome(Message, frozen=True):
    """Controller: you are in."""

    run: str
    host: str
    """Your name in this run; no other host has it."""
    secret: bytes
    policies: list[str]
    preload: list[str]
    path: list[str]
    encrypt: bool
    headless: float = 0.0
    """Seconds that workers may go on when the controller's process has died."""


class Refused(Message, frozen=True):
    """Controller: you cannot take part."""

    text: str


class Relay(Message, frozen=True):
    """Agent: other hosts get parameters from me here."""

    address: str


class Follow(Message, frozen=True):
    """Controller: get this policy's parameters there; empty: they are made on your host."""

    policy: str
    address: str


class Begin(Message, frozen=True):
    """Controller: start a worker."""

    place: Place
    config: Any
    niceness: int
    seed: int


class Tell(Message, frozen=True):
    """Controller: pass this on to these workers."""

    places: list[Place]
    message: ToWorker


class End(Message, frozen=True):
    """Controller: kill it."""

    place: Place


class Signal(Message, frozen=True):
    """Controller: send its process a signal."""

    place: Place
    number: int


class AskDump(Message, frozen=True):
    """Controller: where is it in its code?"""

    place: Place


class Dump(Message, frozen=True):
    place: Place
    text: str


class Heard(Message, frozen=True):
    """Agent: a worker said this."""

    place: Place
    message: FromWorker
    number: int = 0
    """Of the agent's news: it repeats to the next controller what the last one may not have dealt with."""


class Gone(Message, frozen=True):
    """Agent: a worker died. What its gauges [1, WORDS] showed last follows."""

    place: Place
    reason: str
    clean: bool
    blameless: bool = False
    number: int = 0


class Beat(Message, frozen=True):
    """Agent: how my workers are. Their gauges [workers, WORDS] follow, and their USAGE [workers, 4]. From the
    controller: I am here."""

    places: list[Place] | None = None
    """None: the same workers as the last time."""
    safe: int = 0
    """From the controller: news up to this number are written down, a successor will know of them."""


class LogText(Message, frozen=True):
    """Agent: this was added to a log."""

    name: str
    text: bytes


class State(Message, frozen=True):
    """A trainer's committed state, whose arrays follow. Agent: keep this. Controller: go on from this."""

    policy: str
    version: int
    facts: dict[str, Any]
    keys: list[str]


class Tagged(Message, frozen=True):
    """Parameters, which follow. Agent: they were evaluated on my host. Controller: others have kept them."""

    policy: str
    version: int
    tag: str
    """Empty: they are just the newest."""


class Kept(Message, frozen=True):
    """Controller: that state is safe."""

    policy: str
    version: int


class Leaving(Message, frozen=True):
    """Agent: my host is wanted elsewhere. Give me no more work; my workers are about to leave."""


class Leave(Message, frozen=True):
    """Controller: the run is over."""


FromAgent = Union[Join, Rejoin, Relay, Heard, Gone, Beat, LogText, State, Tagged, Leaving, Dump]
FromController = Union[Welcome, Refused, Follow, Begin, Tell, End, Signal, AskDump, State, Tagged, Kept, Beat, Leave]
Messages: Any = Union[FromAgent, FromController]


def codec(messages: Any) -> Codec:
    """For the connections of agents, over which whole trainer states go."""
    return Codec(messages, MAX_STATE_BYTES)


def own_version() -> str:
    return srl.__version__
