"""Versions that the hosts of a run have kept, for those that join later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from srl.api.parameters import ParameterStore
from srl.base.tree import Array
from srl.parameters.host import HostParameterStore
from srl.schedulers.hosts.messages import Tagged

KeepUp = Callable[[ParameterStore], object]
"""Tags the newest version if it should be kept: what workers do with the store of their host."""


class VersionArchive:
    """A store for each policy as a host has it that was there from the beginning; none where nothing is kept."""

    def __init__(self, policies: Sequence[str], keep_up: KeepUp | None) -> None:
        kept = policies if keep_up is not None else ()
        self.stores = {policy: HostParameterStore.create(policy) for policy in kept}
        self._keep_up = keep_up or (lambda store: None)

    def add(self, policy: str, version: int, parameters: Array) -> None:
        store = self.stores.get(policy)
        if store is not None and version > store.version:
            store.push(version, parameters)
            self._keep_up(store)

    def gifts(self) -> Iterator[tuple[Tagged, list[Array]]]:
        """The oldest first, because versions only grow; at last the newest, so that nobody begins with an old one."""
        for policy, store in self.stores.items():
            versions = store.versions()
            newest = versions.pop("latest", -1)
            for tag in sorted(versions, key=versions.__getitem__):
                yield from _gift(policy, tag, store.pull(tag))
            if newest not in versions.values():
                yield from _gift(policy, "", store.pull())

    def close(self) -> None:
        for store in self.stores.values():
            store.memory.close()


def _gift(policy: str, tag: str, pulled: tuple[int, Array] | None) -> Iterator[tuple[Tagged, list[Array]]]:
    if pulled is not None:
        yield Tagged(policy, pulled[0], tag), [pulled[1]]
