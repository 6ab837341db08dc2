"""Takeover of a run by a new controller: the workers that its hosts bring back."""

from __future__ import annotations

from collections.abc import Sequence

from srl.api.scheduler import OrphanWorker
from srl.api.worker import WorkerId
from srl.schedulers.hosts.agent_connections import AgentMessage
from srl.schedulers.hosts.messages import AgentHeartbeat, WorkerExited


class ReturnedWorkers:
    """Workers of hosts that have reconnected, until the new controller has adopted them. Messages about these workers
    are deferred until then, because the scheduler does not know the workers yet."""

    def __init__(self) -> None:
        self.hosts: set[str] = set()
        self._orphans: dict[tuple[str, int], tuple[OrphanWorker, str]] = {}
        self._deferred: list[AgentMessage] = []

    def host_returned(self, host: str, workers: Sequence[OrphanWorker]) -> None:
        self.hosts.add(host)
        self._orphans.update({(worker.worker_id.group, worker.worker_id.index): (worker, host) for worker in workers})

    def host_lost(self, host: str) -> None:
        self.hosts.discard(host)
        self._orphans = {key: found for key, found in self._orphans.items() if found[1] != host}

    def workers(self) -> list[OrphanWorker]:
        return [worker for worker, _ in self._orphans.values()]

    def adopt(self, worker_id: WorkerId) -> str:
        """Return the host of the worker; empty if the host was lost again."""
        _, host = self._orphans.pop((worker_id.group, worker_id.index), (None, ""))
        return host

    def defer(self, message: AgentMessage) -> bool:
        """Keep a message that must not be lost: an agent lists the workers of its heartbeats once, and reports a death
        once. Return whether the message was deferred."""
        if isinstance(message.message, (AgentHeartbeat, WorkerExited)):
            self._deferred.append(message)
            return True
        return False

    def deferred(self) -> list[AgentMessage]:
        deferred, self._deferred = self._deferred, []
        return deferred
