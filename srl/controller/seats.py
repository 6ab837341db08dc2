"""The places of a graph, and who holds them."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.api.worker import Place
from srl.controller.supervision import Watch


@dataclass
class Slot:
    """A place in the graph and who holds it."""

    place: Place
    state: str = "starting"
    """starting | running | stopping | dead"""
    restart_at: float | None = None
    ready_at: float | None = None
    watch: Watch = field(default_factory=Watch)
    last_words: str = ""
