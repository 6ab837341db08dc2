"""Committed states on their way from a host to its controller, and the versions that wait for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from srl.base.snapshot import Snapshot
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent.connection import ControllerLine
from srl.schedulers.hosts.messages import State


@dataclass
class _Shipped:
    """How far a policy's committed states have come."""

    sent: int = -1
    under_way: dict[int, Array] = field(default_factory=dict)
    """version -> its parameters, until the controller has the state that belongs to them."""


class Shipping:
    """A version leaves this host only after the controller holds the state that made it, if there is a controller: who
    begins anew from that state must not be older than what others have seen."""

    def __init__(self, commits: Mapping[str, Snapshot], line: ControllerLine, relay: ParameterRelay) -> None:
        self._commits = commits
        self._line = line
        self._relay = relay
        self._shipped = {policy: _Shipped() for policy in commits}

    @property
    def under_way(self) -> bool:
        return any(shipped.under_way for shipped in self._shipped.values())

    def ship(self) -> None:
        """Send what was committed since the last one arrived."""
        for policy, shipped in self._shipped.items():
            snapshot = self._commits[policy]
            if shipped.under_way or snapshot.version <= shipped.sent:
                continue
            committed = snapshot.read()
            if committed is not None:
                version, state, facts = committed
                shipped.sent = version
                if self._line.send(State(policy, version, facts, list(state)), list(state.values())):
                    shipped.under_way[version] = state["parameters"]
                else:
                    self._relay.offer(policy, version, state["parameters"])

    def arrived(self, policy: str, version: int) -> None:
        parameters = self._shipped[policy].under_way.pop(version, None)
        if parameters is not None:
            self._relay.offer(policy, version, parameters)

    def let_go(self) -> None:
        """The controller is gone: nobody will say that states arrived, and workers on other hosts wait for versions."""
        for policy, shipped in self._shipped.items():
            for version in list(shipped.under_way):
                self.arrived(policy, version)

    def begin_anew(self) -> None:
        """Another controller: it needs the states that its predecessor held."""
        self.let_go()
        for shipped in self._shipped.values():
            shipped.sent = -1
