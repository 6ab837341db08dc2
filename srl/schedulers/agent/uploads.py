"""An agent's uploads to its controller: the states that trainers commit, and worker logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from srl.api.transport import Channel
from srl.base.files import Backlog
from srl.base.snapshot import Snapshot
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent.connection import ControllerConnection
from srl.schedulers.hosts.messages import CommittedState, LogText
from srl.schedulers.local.scheduler import ZYGOTE
from srl.schedulers.local.worker_logs import LogStore

MAX_LOG_BYTES = 1 << 16  # per log and heartbeat, to bound the bandwidth that logs use
DROPPED = b"srl: output was dropped here, because there was more than is sent to the controller\n"
PER_HOST_LOGS = (ZYGOTE,)  # logs that every host writes; in the run directory, the host's name is appended to theirs


@dataclass
class _Progress:
    """Upload progress of one policy."""

    last_sent: int = -1
    unconfirmed: dict[int, Array] = field(default_factory=dict)  # version -> parameters, until its state is stored


class StateUpload:
    """Upload of committed states. Other hosts receive a version only after the controller, if there is one, has stored
    its state. Otherwise, a trainer restarted from the stored state could be older than versions in use elsewhere."""

    def __init__(self, commits: dict[str, Snapshot], connection: ControllerConnection, relay: ParameterRelay) -> None:
        self._commits = commits
        self._connection = connection
        self._relay = relay
        self._uploads = {policy: _Progress() for policy in commits}
        for snapshot in commits.values():
            snapshot.set_durable(-1)

    @property
    def in_progress(self) -> bool:
        return any(upload.unconfirmed for upload in self._uploads.values())

    def versions(self) -> dict[str, int]:
        """Return the version of each policy's newest state."""
        return {policy: self._commits[policy].version for policy in self._uploads}

    def send(self, at_once: bool = False) -> None:
        """Send the newest state of each policy whose previous upload has been confirmed; with `at_once`, of each."""
        for policy, upload in self._uploads.items():
            snapshot = self._commits[policy]
            if (upload.unconfirmed and not at_once) or snapshot.version <= upload.last_sent:
                continue
            if self._connection.channel is None and not self._connection.controller_died:
                continue  # a controller that lives replaces this host's workers, and does not know this state
            committed = snapshot.read()
            if committed is not None:
                version, state, metadata = committed
                message = CommittedState(policy, version, metadata, list(state))
                if self._connection.send(message, list(state.values())):
                    upload.last_sent = version
                    upload.unconfirmed[version] = state["parameters"]
                elif self._connection.controller_died:
                    upload.last_sent = version
                    self._relay.offer(policy, version, state["parameters"])

    def confirm(self, policy: str, version: int) -> None:
        """Handle the controller's confirmation that it has stored this state: release its parameters to other hosts."""
        self._commits[policy].set_durable(version)
        parameters = self._uploads[policy].unconfirmed.pop(version, None)
        if parameters is not None:
            self._relay.offer(policy, version, parameters)

    def confirm_all(self) -> None:
        """Handle the death of the controller: release all parameters now, because no confirmation will come."""
        for policy, upload in self._uploads.items():
            for version in list(upload.unconfirmed):
                self.confirm(policy, version)
            self._commits[policy].set_durable(None)

    def restart(self) -> None:
        """Prepare to send all states again to a new controller, which lacks those that its predecessor stored. Until it
        has stored one, none is durable."""
        self.confirm_all()
        for policy, upload in self._uploads.items():
            upload.last_sent = -1
            self._commits[policy].set_durable(-1)


class LogUpload(LogStore):
    """Upload of a host's logs. Until the next heartbeat, the end of each log is held in memory."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._held: dict[str, Backlog] = {}

    def add(self, name: str, text: bytes) -> None:
        held = self._held.get(name) or self._held.setdefault(name, Backlog(MAX_LOG_BYTES))
        if text:
            held.add(text)

    def flush(self) -> None:
        pass  # the next heartbeat sends it

    def close(self) -> None:
        pass

    def send(self, channel: Channel) -> None:
        """Send the text added since the last call, or only its end if there is too much."""
        for log, held in list(self._held.items()):
            texts, dropped = held.take()
            if texts:
                name = f"{log}-{self._host}" if log in PER_HOST_LOGS else log
                channel.send(LogText(name, (DROPPED if dropped else b"") + b"".join(texts)))
