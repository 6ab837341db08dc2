"""Takeover of a run by a new controller: keeps track of the workers that reconnecting hosts bring back. The
controller's own part is in `srl.controller.takeover`."""

from __future__ import annotations

from collections.abc import Sequence

from srl.api.scheduler import OrphanWorker
from srl.api.worker import WorkerId
from srl.schedulers.hosts.agent_connections import AgentMessage
from srl.schedulers.hosts.messages import AgentHeartbeat, WorkerExited


class ReturnedWorkers:
    """Workers on hosts that have reconnected, until the new controller adopts them. Messages about them are deferred
    until then, because the scheduler does not know them yet."""

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
        """Remove a worker that is being adopted, and return its host; empty if the host was lost again."""
        _, host = self._orphans.pop((worker_id.group, worker_id.index), (None, ""))
        return host

    def defer(self, message: AgentMessage) -> bool:
        """Hold back a heartbeat, which may list the agent's workers only once, or a worker's exit until the workers are
        adopted. Return whether the message was held back."""
        if isinstance(message.message, (AgentHeartbeat, WorkerExited)):
            self._deferred.append(message)
            return True
        return False

    def deferred(self) -> list[AgentMessage]:
        deferred, self._deferred = self._deferred, []
        return deferred
