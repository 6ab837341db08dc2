"""What an exact resume keeps of the ends of streams: admissions, blocks under way, requests, unread messages.

Only runs in one thread are resumed exactly, so this stands apart from the ends themselves, whose insides it knows. An
end is restored in a fresh run of the same shape, before anybody polls: first it meets those it was connected with
(until then `restore_...` returns False and is called again), then it becomes what it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from srl.api.policy import Policy
from srl.api.streams import Cell, OpenBlock, PostedBlock
from srl.api.transport import Channel
from srl.base.state import NotResumable, State, pack, part, under, unpack
from srl.base.tree import Array
from srl.streams.admission import Admission
from srl.streams.arena import Arena
from srl.streams.push_consumer import Consumer, _Source
from srl.streams.push_messages import Grant, Offer, Terms
from srl.streams.push_producer import Producer
from srl.streams.request import Attach, Client, InlineClient, Server, _Origin
from srl.transports.inproc import InprocChannel


def save_producer(producer: Producer) -> dict[str, Array]:
    free = set(producer._free)
    links = {
        link.name: {
            "wanted": link.wanted,
            "grants": [[grant.ticket, grant.min_version] for grant in link.grants],
            "num_held": link.num_held,
            "posted": sorted(link.posted),
            "terms": None if link.terms is None else [link.terms.waited_for, link.terms.room],
            "unread": _unread(link.channel),
        }
        for link in producer._links.values()
    }
    opened = [[o.block.index, o.min_version, o.tickets, o.alive] for o in producer._open.values()]
    facts = {"links": links, "open": opened, "free": list(producer._free), "sequence": producer._sequence}
    blocks = {
        f"block/{block.index}/{path}": array.copy()
        for block in producer.arena.blocks
        if block.index not in free
        for path, array in block.arrays.items()
    }
    return {"facts": pack(facts), **blocks}


def restore_producer(producer: Producer, state: State) -> bool:
    facts = unpack(state["facts"])
    producer._connect()
    if not set(facts["links"]) <= set(producer._links):
        return False
    blocks = producer.arena.blocks
    for block in blocks:
        for path, values in part(state, f"block/{block.index}").items():
            block.arrays[path][...] = values
    producer._free = deque(facts["free"])
    producer._sequence = facts["sequence"]
    producer._open = {index: OpenBlock(blocks[index], *rest) for index, *rest in facts["open"]}
    for name, saved in facts["links"].items():
        link = producer._links[name]
        link.wanted, link.num_held = saved["wanted"], saved["num_held"]
        link.grants = deque(Grant(*grant) for grant in saved["grants"])
        link.posted = set(saved["posted"])
        link.terms = None if saved["terms"] is None else Terms(*saved["terms"])
        _put_back(link.channel, saved["unread"])
    return True


def open_block(producer: Producer, index: int) -> OpenBlock | None:
    """The open block of a restored producer; -1 stands for none."""
    return None if index < 0 else producer._open[index]


def save_consumer(consumer: Consumer) -> dict[str, Array]:
    admission = consumer.admission
    sources = [
        {
            "producer": source.producer,
            "wanted": source.wanted,
            "tickets": sorted(source.tickets),
            "last_sequence": source.last_sequence,
            "unread": _unread(source.channel),
        }
        for source in consumer._sources
    ]
    queue = [
        [p.producer, p.sequence, p.ticket, p.oldest_version, p.block.index, p.incarnation] for p, _ in consumer._queue
    ]
    facts = {
        "sources": sources,
        "queue": queue,
        "turn": consumer._turn,
        "waited": consumer._waited,
        "counts": [consumer._posted, consumer._consumed, consumer._dropped],
        "admission": [admission.version, admission.used, admission.queued, list(admission.granted.items())],
        "next_ticket": admission._next_ticket,
    }
    return {"facts": pack(facts)}


def restore_consumer(consumer: Consumer, state: State) -> bool:
    facts = unpack(state["facts"])
    _meet_producers(consumer)
    present = {source.producer: source for source in consumer._sources if source.arena is not None}
    if not {saved["producer"] for saved in facts["sources"]} <= set(present):
        return False
    for saved in facts["sources"]:
        source = present[saved["producer"]]
        source.wanted, source.last_sequence = saved["wanted"], saved["last_sequence"]
        source.tickets = set(saved["tickets"])
        _put_back(source.channel, saved["unread"])
    consumer._sources = [present[saved["producer"]] for saved in facts["sources"]]
    consumer._queue = []
    for producer, sequence, ticket, oldest, index, incarnation in facts["queue"]:
        source = present[producer]
        assert source.arena is not None
        posted = PostedBlock(producer, sequence, ticket, oldest, source.arena.blocks[index], incarnation)
        consumer._queue.append((posted, source))
    consumer._turn, consumer._waited = facts["turn"], facts["waited"]
    consumer._posted, consumer._consumed, consumer._dropped = facts["counts"]
    _restore_admission(consumer.admission, facts)
    return True


def _meet_producers(consumer: Consumer) -> None:
    """Take in who they are and where their memory lies, and nothing else."""
    while (channel := consumer._listener.accept()) is not None:
        consumer._context.wake_on(channel)
        consumer._sources.append(_Source(channel))
    for source in consumer._sources:
        received = source.channel.receive()
        if received is not None:
            if not isinstance(received[0], Offer):
                raise NotResumable(f"{source.producer} worked before the run was restored")
            consumer._handle(source, *received)


def _restore_admission(admission: Admission, facts: dict[str, Any]) -> None:
    admission.version, admission.used, admission.queued, granted = facts["admission"]
    admission.granted = dict(granted)
    admission._next_ticket = facts["next_ticket"]


def save_client(client: InlineClient | Client) -> dict[str, Array]:
    if isinstance(client, InlineClient):
        waiting = [[tag, _plain_cells(cells), oldest] for tag, cells, oldest in client._waiting]
        return {"facts": pack({"waiting": waiting}), **under("policy", save_policy(client.policy))}
    servers = {
        server.name: {
            "pending": [[tag, _plain_cells(cells), oldest] for tag, (cells, oldest) in server.pending.items()],
            "unread": _unread(server.channel),
        }
        for server in client._servers.values()
    }
    queue = [[tag, _plain_cells(cells), oldest] for tag, cells, oldest in client._queue]
    return {"facts": pack({"servers": servers, "queue": queue})}


def restore_client(client: InlineClient | Client, arena: Arena, state: State) -> bool:
    """`arena` is the memory that the client's cells lie in."""
    facts = unpack(state["facts"])
    if isinstance(client, InlineClient):
        client._waiting = deque((tag, _cells(arena, cells), oldest) for tag, cells, oldest in facts["waiting"])
        restore_policy(client.policy, part(state, "policy"))
        return True
    client._connect()
    if not set(facts["servers"]) <= set(client._servers):
        return False
    for name, saved in facts["servers"].items():
        server = client._servers[name]
        server.pending = {tag: (_cells(arena, cells), oldest) for tag, cells, oldest in saved["pending"]}
        _put_back(server.channel, saved["unread"])
    client._queue = deque((tag, _cells(arena, cells), oldest) for tag, cells, oldest in facts["queue"])
    return True


def save_server(server: Server) -> dict[str, Array]:
    askers = [{"client": asker.client, "unread": _unread(asker.channel)} for asker in server._askers]
    waiting = [[o.asker.client, o.tag, _plain_cells(o.cells), o.lanes, o.min_version] for o in server._waiting]
    return {"facts": pack({"askers": askers, "waiting": waiting, "counts": [server._batches, server._lanes]})}


def restore_server(server: Server, state: State) -> bool:
    facts = unpack(state["facts"])
    _meet_clients(server)
    present = {asker.client: asker for asker in server._askers if asker.arena is not None}
    if not {saved["client"] for saved in facts["askers"]} <= set(present):
        return False
    server._askers = [present[saved["client"]] for saved in facts["askers"]]
    for saved in facts["askers"]:
        _put_back(present[saved["client"]].channel, saved["unread"])
    server._waiting.clear()
    for client, tag, cells, lanes, oldest in facts["waiting"]:
        asker = present[client]
        assert asker.arena is not None
        server._waiting.append(_Origin(asker, tag, tuple(_cells(asker.arena, cells)), lanes, oldest))
    server._batches, server._lanes = facts["counts"]
    return True


def _meet_clients(server: Server) -> None:
    from srl.streams.request import _Asker

    while (channel := server._listener.accept()) is not None:
        server._context.wake_on(channel)
        server._askers.append(_Asker(channel))
    for asker in server._askers:
        received = asker.channel.receive()
        if received is not None:
            if not isinstance(received[0], Attach):
                raise NotResumable(f"{asker.client} asked before the run was restored")
            server._handle(asker, *received)


def save_policy(policy: Policy) -> State:
    return policy.state()


def restore_policy(policy: Policy, state: State) -> None:
    policy.restore(state)


def _plain_cells(cells: Sequence[Cell]) -> list[list[int]]:
    return [[cell.block.index, cell.row] for cell in cells]


def _cells(arena: Arena, plain: list[list[int]]) -> list[Cell]:
    return [Cell(arena.blocks[index], row) for index, row in plain]


def _unread(channel: Channel) -> list[str]:
    if not isinstance(channel, InprocChannel):
        raise NotResumable("only runs in one thread (the inline scheduler) can be saved with all that is under way")
    return [frame.hex() for frame in channel.unread()]


def _put_back(channel: Channel, frames: list[str]) -> None:
    assert isinstance(channel, InprocChannel)
    channel.put_back([bytes.fromhex(frame) for frame in frames])
