"""Workers that outlived their controller, from the moment their hosts are back until its successor has adopted them."""

from __future__ import annotations

from collections.abc import Sequence

from srl.api.scheduler import OrphanWorker
from srl.api.worker import Place
from srl.schedulers.hosts.fleet import Word
from srl.schedulers.hosts.messages import Beat, Gone


class AdoptableWorkers:
    """Who came back on which host. What hosts tell of workers waits until these are adopted: nobody knows them yet."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self._held: dict[tuple[str, int], tuple[OrphanWorker, str]] = {}
        self._waiting: list[Word] = []

    def came(self, host: str, workers: Sequence[OrphanWorker]) -> None:
        self.hosts.add(host)
        self._held.update({(held.place.group, held.place.index): (held, host) for held in workers})

    def lost(self, host: str) -> None:
        self.hosts.discard(host)
        self._held = {key: found for key, found in self._held.items() if found[1] != host}

    def workers(self) -> list[OrphanWorker]:
        return [held for held, _ in self._held.values()]

    def adopt(self, place: Place) -> str:
        """The host that holds it; empty: it is lost again."""
        found = self._held.pop((place.group, place.index), None)
        return found[1] if found is not None else ""

    def defer(self, word: Word) -> bool:
        """Shall it wait? An agent lists the workers of its figures only once, and reports a death once."""
        if isinstance(word.message, (Beat, Gone)):
            self._waiting.append(word)
            return True
        return False

    def deferred(self) -> list[Word]:
        waiting, self._waiting = self._waiting, []
        return waiting
