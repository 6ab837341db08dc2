"""The end of a sample stream at which a reanalyze worker gets rows with old targets, and returns new ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srl.api.transport import ChannelClosed
from srl.api.worker import Context
from srl.base.tree import Array
from srl.streams.messages import AttachReanalyzer, FetchRows, NewTargets, RowsReply, SampleMessage
from srl.streams.peers import PeerLink, connect_peers

if TYPE_CHECKING:
    from srl.streams.sample import SampleStream

CONNECT_SECONDS = 0.02  # between two attempts to connect to replay workers
REST_SECONDS = 0.02  # after an answer without rows


@dataclass(eq=False)
class _ReplayLink(PeerLink):
    """A connection to one replay worker."""

    tag: int = 0
    is_asked: bool = False
    rest_until: float = 0.0


@dataclass(frozen=True)
class FetchedRows:
    """Rows of one replay worker: observations [N, ...] by path."""

    observation: Mapping[str, Array]
    tag: int
    link: object


class RowsClient:
    """Asks each replay worker for the next rows while the worker still searches the last ones."""

    def __init__(self, stream: SampleStream, context: Context, count: int) -> None:
        self._stream, self._context, self._count = stream, context, count
        self._attach = AttachReanalyzer(context.worker_id.name, context.worker_id.incarnation)
        self._links: dict[str, _ReplayLink] = {}
        self._next_attempt = 0.0

    def poll(self) -> list[FetchedRows]:
        """Return the rows that have arrived, and ask for more."""
        self._connect()
        found = []
        for link in list(self._links.values()):
            try:
                while (received := link.channel.receive()) is not None:
                    rows = self._accept(link, received[0], received[1])
                    if rows is not None:
                        found.append(rows)
                if not link.is_asked and time.monotonic() >= link.rest_until:
                    link.tag, link.is_asked = link.tag + 1, True
                    link.channel.send(FetchRows(link.tag, self._count))
                link.channel.flush()
            except ChannelClosed:
                self._lose(link)
        return found

    def _accept(self, link: _ReplayLink, message: Any, arrays: list[Array]) -> FetchedRows | None:
        if not isinstance(message, RowsReply) or message.tag != link.tag or len(message.paths) != len(arrays):
            raise ChannelClosed(f"{link.name} sent a {type(message).__name__} that was not asked for")
        link.is_asked = False
        if not arrays:
            link.rest_until = time.monotonic() + REST_SECONDS * self._context.threads
            return None
        count = len(arrays[0])
        for path, array in zip(message.paths, arrays, strict=True):
            if not path.startswith("observation") or not self._stream.fits(path, array, (count,)):
                raise ChannelClosed(f"{link.name} sent {path} as {array.dtype}{array.shape}")
        return FetchedRows(dict(zip(message.paths, arrays, strict=True)), message.tag, link)

    def give_back(self, rows: FetchedRows, targets: Mapping[str, Array], version: int) -> None:
        """Send new targets by name to where the rows came from, unless that replay worker is gone."""
        link = rows.link
        assert isinstance(link, _ReplayLink)
        if self._links.get(link.name) is link:
            try:
                link.channel.send(NewTargets(rows.tag, version, list(targets)), tuple(targets.values()))
            except ChannelClosed:
                self._lose(link)

    def _connect(self) -> None:
        if self._context.threads and time.monotonic() < self._next_attempt:
            return
        self._next_attempt = time.monotonic() + CONNECT_SECONDS
        prefix, remote = self._stream.prefix, self._stream.remote
        kinds = _ReplayLink, self._lose, SampleMessage, self._attach
        connect_peers(self._context, prefix, remote, self._links, *kinds, None)

    def _lose(self, link: _ReplayLink) -> None:
        link.channel.close()
        if self._links.get(link.name) is link:
            del self._links[link.name]

    def close(self) -> None:
        for link in self._links.values():
            link.channel.close()
        self._links.clear()
