"""What the controller of a run over hosts holds for all of them, so that it is not lost with one."""

from __future__ import annotations

from collections.abc import Sequence

from srl.base.tree import Array
from srl.schedulers.hosts.fleet import Fleet
from srl.schedulers.hosts.messages import Kept, State, Tagged
from srl.schedulers.hosts.version_archive import VersionArchive
from srl.schedulers.local.run_memory import RunMemory


class StateReplica:
    """Of the trainers' committed states, and of the parameters that did best."""

    def __init__(self, memory: RunMemory, fleet: Fleet, heritage: VersionArchive) -> None:
        self._memory = memory
        self._fleet = fleet
        self._heritage = heritage

    def keep(self, name: str, message: State, arrays: Sequence[Array]) -> None:
        """A trainer on that host has committed this."""
        snapshot = self._memory.commits[message.policy]
        if message.version > snapshot.version:
            state = dict(zip(message.keys, arrays, strict=True))
            snapshot.write(message.version, state, message.facts)
            self._heritage.add(message.policy, message.version, state["parameters"])
        if name in self._fleet.hosts:
            self._fleet.hosts[name].states[message.policy] = message.version
            self._fleet.send(name, Kept(message.policy, message.version))

    def entrust(self, policy: str, name: str) -> None:
        """A trainer begins there: its last committed state must be there first."""
        host = self._fleet.hosts[name]
        snapshot = self._memory.commits[policy]
        if snapshot.version > host.states.get(policy, -1) and (committed := snapshot.read()) is not None:
            version, state, facts = committed
            host.states[policy] = version
            self._fleet.send(name, State(policy, version, facts, list(state)), list(state.values()))

    def keep_evaluated(self, message: Tagged, arrays: Sequence[Array]) -> None:
        store = self._memory.parameters.get(message.policy)
        if store is not None and len(arrays) == 1 and message.version > store.version:
            store.push(message.version, arrays[0], (message.tag,))
