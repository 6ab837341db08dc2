"""The controller's copies of its hosts' states and parameters, so that none is lost with a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from srl.api.parameters import ParameterStore
from srl.base.tree import Array
from srl.parameters.host import HostParameterStore
from srl.schedulers.hosts.agent_connections import AgentConnections
from srl.schedulers.hosts.messages import CommittedState, StateStored, TaggedParameters
from srl.schedulers.local.run_memory import RunMemory

Retention = Callable[[ParameterStore], object]
"""Function that tags a store's newest version if it should be kept, as workers do in their host's store."""


class VersionArchive:
    """Archive of older parameter versions, which gives hosts that join later the same versions as the first hosts."""

    def __init__(self, policies: Sequence[str], retention: Retention | None) -> None:
        archived = policies if retention is not None else ()
        self.stores = {policy: HostParameterStore.create(policy) for policy in archived}
        self._retention = retention or (lambda store: None)

    def add(self, policy: str, version: int, parameters: Array) -> None:
        store = self.stores.get(policy)
        if store is not None and version > store.version:
            store.push(version, parameters)
            self._retention(store)

    def messages(self) -> Iterator[tuple[TaggedParameters, list[Array]]]:
        """Yield all versions, oldest first, because versions must increase."""
        for policy, store in self.stores.items():
            versions = store.versions()
            newest = versions.pop("latest", -1)
            tags = sorted(versions, key=versions.__getitem__)
            for tag in (*tags, *([] if newest in versions.values() else [""])):
                pulled = store.pull(tag or "latest")
                if pulled is not None:
                    yield TaggedParameters(policy, pulled[0], tag), [pulled[1]]

    def close(self) -> None:
        for store in self.stores.values():
            store.memory.close()


class StateReplica:
    """Copies of committed trainer states and of evaluated parameters."""

    def __init__(self, memory: RunMemory, agents: AgentConnections, archive: VersionArchive) -> None:
        self._memory = memory
        self._agents = agents
        self._archive = archive

    def store(self, host: str, message: CommittedState, arrays: Sequence[Array]) -> None:
        """Store a state that a trainer on this host has committed, and confirm it."""
        snapshot = self._memory.commits[message.policy]
        if message.version > snapshot.version:
            state = dict(zip(message.keys, arrays, strict=True))
            snapshot.write(message.version, state, message.metadata)
            self._archive.add(message.policy, message.version, state["parameters"])
        if host in self._agents.hosts:
            self._agents.hosts[host].state_versions[message.policy] = message.version
            self._agents.send(host, StateStored(message.policy, message.version))

    def is_complete(self, policy: str) -> bool:
        """Return whether the newest state that a connected host has committed is here. After a takeover it may still be
        on its way, and a trainer that started elsewhere without it would lose updates."""
        expected = (host.expected_states.get(policy, -1) for host in self._agents.hosts.values())
        return self._memory.commits[policy].version >= max(expected, default=-1)

    def send(self, policy: str, name: str) -> None:
        """Send the last committed state to a host where a trainer is about to start, unless the host has it.

        If its version is lower than one that workers have, whose state was lost while there was no controller, the
        host gives the state a new version: workers would not adopt a lower one."""
        host = self._agents.hosts[name]
        snapshot = self._memory.commits[policy]
        seen = self._agents.seen.get(policy, -1)
        floor = seen if seen > snapshot.version else -1
        is_newer = snapshot.version > host.state_versions.get(policy, -1)
        if (is_newer or floor >= 0) and (committed := snapshot.read()) is not None:
            version, state, metadata = committed
            host.state_versions[policy] = version
            message = CommittedState(policy, version, metadata, list(state), floor)
            self._agents.send(name, message, list(state.values()))

    def store_evaluated(self, message: TaggedParameters, arrays: Sequence[Array]) -> None:
        store = self._memory.parameters.get(message.policy)
        if store is not None and len(arrays) == 1 and message.version > store.version:
            store.push(message.version, arrays[0], (message.tag,))
