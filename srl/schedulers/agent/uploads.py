"""An agent's uploads to its controller: the states that trainers commit, and worker logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from srl.api.transport import Channel
from srl.base.snapshot import Snapshot
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent.connection import ControllerConnection
from srl.schedulers.hosts.messages import CommittedState, LogText

MAX_LOG_BYTES = 1 << 16  # per log and heartbeat, to bound the bandwidth that logs use
PER_HOST_LOGS = ("zygote",)  # logs that every host writes; in the run directory, the host's name is appended to theirs


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

    def send(self) -> None:
        """Send the newest state of each policy whose previous upload has been confirmed."""
        for policy, upload in self._uploads.items():
            snapshot = self._commits[policy]
            if upload.unconfirmed or snapshot.version <= upload.last_sent:
                continue
            committed = snapshot.read()
            if committed is not None:
                version, state, metadata = committed
                upload.last_sent = version
                message = CommittedState(policy, version, metadata, list(state))
                if self._connection.send(message, list(state.values())):
                    upload.unconfirmed[version] = state["parameters"]
                else:
                    self._relay.offer(policy, version, state["parameters"])

    def confirm(self, policy: str, version: int) -> None:
        """Handle the controller's confirmation that it has stored this state: release its parameters to other hosts."""
        self._commits[policy].set_durable(version)
        parameters = self._uploads[policy].unconfirmed.pop(version, None)
        if parameters is not None:
            self._relay.offer(policy, version, parameters)

    def confirm_all(self) -> None:
        """Handle the loss of the controller: release all parameters now, because no confirmation will come."""
        for policy, upload in self._uploads.items():
            for version in list(upload.unconfirmed):
                self.confirm(policy, version)
            self._commits[policy].set_durable(None)

    def restart(self) -> None:
        """Prepare to send all states again to a new controller, which lacks those that its predecessor stored."""
        self.confirm_all()
        for upload in self._uploads.values():
            upload.last_sent = -1


class LogUpload:
    """Upload of the text appended to a host's logs."""

    def __init__(self, directory: Path, host: str) -> None:
        self._directory = directory
        self._host = host
        self._sent: dict[str, int] = {}

    def send(self, channel: Channel) -> None:
        """Send the text appended since the last call, or only its end if there is too much."""
        for path in self._directory.glob("*.log"):
            size = path.stat().st_size
            begin = self._sent.get(path.name, 0)
            if size <= begin:
                continue
            with path.open("rb") as file:
                file.seek(max(begin, size - MAX_LOG_BYTES))
                text = file.read(MAX_LOG_BYTES)
            self._sent[path.name] = size
            name = f"{path.stem}-{self._host}" if path.stem in PER_HOST_LOGS else path.stem
            channel.send(LogText(name, text))
