"""The request stream: batches, answers, and the cells they are written to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.counting import DECISION_SPEC, MEMORY_SPEC, CountingPolicy
from support.stages import Stage
from support.waiting import until

from srl.api.block import BlockMemory, BlockSpec
from srl.api.streams import Answer, Cell, RequestBatch, RequestClient, RequestServer
from srl.base.meter import Counter, Meter
from srl.base.tree import Array, ArraySpec, from_leaves
from srl.parameters.host import HostParameterStore
from srl.streams.messages import Reply, Request
from srl.streams.request_client import Client, InlineClient
from srl.streams.request_server import Server
from srl.streams.rows import decide as decide_rows
from srl.streams.rows import flat_decision, gather, tree_of, write_decision


def loaded(version: int = 0, parameter: float = 0.0, seed: int = 0) -> CountingPolicy:
    policy = CountingPolicy(seed)
    policy.load(np.array([parameter], np.float32), version)
    return policy


def decide(policy: CountingPolicy, batch: RequestBatch) -> Answer:
    return Answer(flat_decision(policy.act(from_leaves(batch.observation), None, batch.first)), policy.version)


def observe(memory: BlockMemory) -> None:
    """Give every lane of every row of every block another observation: 100 * block + 10 * row + lane, three times."""
    for block in memory.blocks:
        for row in range(memory.spec.rows):
            for lane in range(memory.spec.lanes):
                block.arrays["observation"][row, lane] = 100 * block.index + 10 * row + lane


def ask(client: Client, server: Server, tag: int, cells: Sequence[Cell], min_version: int = 0) -> None:
    """Post a request and let it arrive at its server, which does not answer it yet."""
    assert client.post(tag, cells, min_version) is False
    client.flush()
    wanted = len(server._waiting) + 1
    until(lambda: len(server._waiting) == wanted, client.poll, lambda: server.poll(-1))


def answers(client: Client, *servers: Server) -> list[int]:
    def poll() -> None:
        for server in servers:
            server.poll(-1)

    return until(client.poll, poll)


def test_both_ends_implement_the_contract(stage: Stage) -> None:
    stream = stage.requests()
    assert isinstance(stage.client(stream, stage.memory()), RequestClient)
    assert isinstance(stage.server(stream), RequestServer)


def test_decisions_and_versions_are_written_beside_their_observations_only(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    client, server = stage.client(stream, memory), stage.server(stream)
    observe(memory)
    before = [{path: array.copy() for path, array in block.arrays.items()} for block in memory.blocks]
    ask(client, server, 5, [Cell(memory.blocks[2], 1), Cell(memory.blocks[0], 2)])
    batch = server.poll(3)
    assert batch is not None
    np.testing.assert_array_equal(batch.observation[""][:, 0], [210, 211, 20, 21])
    server.reply(batch, decide(loaded(version=3, parameter=0.5), batch))
    assert answers(client, server) == [5]
    for index, row, values in ((2, 1, [630.5, 633.5]), (0, 2, [60.5, 63.5])):
        np.testing.assert_array_equal(memory.blocks[index].arrays["decision/value"][row], values)
        np.testing.assert_array_equal(memory.blocks[index].arrays["version"][row], [3, 3])
        for path in ("decision/action", "decision/value", "version"):
            before[index][path][row] = memory.blocks[index].arrays[path][row]
    for block in memory.blocks:
        for path, array in block.arrays.items():
            np.testing.assert_array_equal(array, before[block.index][path])


def decisions_over(kind: str, directory: Path) -> list[Array]:
    """Ten requests of two cells, answered by the same policy with the same seed."""
    stage = Stage(kind if kind != "inline" else "inproc", directory)  # type: ignore[arg-type]
    try:
        memory = stage.memory()
        observe(memory)
        policy = loaded(version=1, parameter=2.0, seed=11)
        found = []
        store = stage.world.stores["policy"]
        store.push(1, np.array([2.0], np.float32))
        stream = stage.requests()
        inline = InlineClient(CountingPolicy(11), store, memory, Meter.unshared()) if kind == "inline" else None
        client = inline or stage.client(stream, memory)
        server = None if inline else stage.server(stream)
        for number in range(10):
            cells = [Cell(memory.blocks[number % 4], 0), Cell(memory.blocks[(number + 1) % 4], 1)]
            if server is None:
                assert client.post(number, cells, 0) is True
            else:
                assert isinstance(client, Client)
                ask(client, server, number, cells)
                batch = server.poll(1)
                assert batch is not None
                server.reply(batch, decide(policy, batch))
                assert answers(client, server) == [number]
            for cell in cells:
                found += [cell.block.arrays[path][cell.row].copy() for path in ("decision/action", "decision/value")]
                np.testing.assert_array_equal(cell.block.arrays["version"][cell.row], 1)
        return found
    finally:
        stage.close()


def test_inline_host_and_tcp_give_the_same_decisions(tmp_path: Path) -> None:
    wanted = decisions_over("inline", tmp_path)
    assert len({tuple(array) for array in wanted[::2]}) > 1  # the actions are drawn
    for kind in ("inproc", "host", "tcp"):
        for found, array in zip(decisions_over(kind, tmp_path), wanted, strict=True):
            np.testing.assert_array_equal(found, array)


def test_all_waiting_requests_become_one_batch(stage: Stage) -> None:
    stream = stage.requests()
    server = stage.server(stream)
    memories = [stage.memory() for _ in range(3)]
    clients = [stage.client(stream, memory, index) for index, memory in enumerate(memories)]
    for number, (client, memory) in enumerate(zip(clients, memories, strict=True)):
        observe(memory)
        ask(client, server, 7, [Cell(memory.blocks[number], 0)])
    batch = server.poll(0)
    assert batch is not None
    assert len(batch.first) == 6
    assert server.poll(0) is None
    server.reply(batch, decide(loaded(), batch))
    for number, (client, memory) in enumerate(zip(clients, memories, strict=True)):
        assert answers(client, server) == [7]
        np.testing.assert_array_equal(
            memory.blocks[number].arrays["decision/value"][0], [300 * number, 300 * number + 3]
        )
    meter = server._context.meter
    assert (meter.get(Counter.BATCHES), meter.get(Counter.BATCHED_LANES)) == (1, 6)


def test_requests_beyond_the_maximum_batch_are_answered_next(stage: Stage) -> None:
    stream, memory = stage.requests(max_batch=4), stage.memory(8)
    client, server = stage.client(stream, memory), stage.server(stream)
    for tag, blocks in enumerate(([0], [1, 2], [3], [4, 5, 6])):
        ask(client, server, tag, [Cell(memory.blocks[block], 0) for block in blocks])
    tags = []
    while (batch := server.poll(0)) is not None:
        tags.append([request.tag for request in batch.requests])  # type: ignore[attr-defined]
        server.reply(batch, decide(loaded(), batch))
    assert tags == [[0, 2], [1], [3]]  # a request is never split; one that is too large is a batch by itself


def test_requests_wait_for_the_version_they_need(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    client, server = stage.client(stream, memory), stage.server(stream)
    ask(client, server, 0, [Cell(memory.blocks[0], 0)], min_version=2)
    ask(client, server, 1, [Cell(memory.blocks[1], 0)], min_version=1)
    assert server.poll(-1) is None
    assert server.poll(0) is None
    batch = server.poll(1)
    assert batch is not None
    server.reply(batch, decide(loaded(1), batch))
    assert answers(client, server) == [1]
    assert server.poll(1) is None
    batch = server.poll(2)
    assert batch is not None
    server.reply(batch, decide(loaded(2), batch))
    assert answers(client, server) == [0]
    assert [int(block.arrays["version"][0, 0]) for block in memory.blocks[:2]] == [2, 1]


def test_a_relaxed_request_is_answered_by_an_older_version(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    client, server = stage.client(stream, memory), stage.server(stream)
    ask(client, server, 0, [Cell(memory.blocks[0], 0)], min_version=7)
    ask(client, server, 1, [Cell(memory.blocks[1], 0)], min_version=7)
    client.relax(0, 2)
    batch = until(lambda: server.poll(3), client.poll)
    assert [request.tag for request in batch.requests] == [0]
    server.reply(batch, decide(loaded(3), batch))
    assert answers(client, server) == [0]


def test_a_request_that_was_not_sent_yet_can_be_relaxed(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    client = stage.client(stream, memory)
    client.post(0, [Cell(memory.blocks[0], 0)], 7)
    client.relax(0, 0)
    server = stage.server(stream)
    assert until(lambda: server.poll(0), client.poll).requests[0].tag == 0


def test_a_request_goes_to_the_server_that_has_taken_over_the_name_of_a_frozen_one(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    frozen = stage.server(stream)
    client = stage.client(stream, memory)
    ask(client, frozen, 0, [Cell(memory.blocks[0], 0)])
    replacement = stage.server(stream, incarnation=1)  # the frozen one has not closed its channels
    client.flush()
    until(lambda: len(replacement._waiting) == 1, client.poll, lambda: replacement.poll(-1))


def test_requests_go_to_the_server_with_the_fewest_pending(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    servers = [stage.server(stream, index) for index in range(2)]
    client = stage.client(stream, memory)
    for tag in range(4):
        client.post(tag, [Cell(memory.blocks[tag], 0)], 0)
    client.flush()

    def arrived() -> bool:
        return [len(server._waiting) for server in servers] == [2, 2]

    until(arrived, client.poll, lambda: [server.poll(-1) for server in servers])


def test_the_requests_of_a_dead_server_are_answered_by_another(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    dying = stage.server(stream, 0)
    client = stage.client(stream, memory)
    observe(memory)
    ask(client, dying, 0, [Cell(memory.blocks[0], 0)])
    ask(client, dying, 1, [Cell(memory.blocks[1], 0)])
    batch = dying.poll(0)
    assert batch is not None
    dying.close()  # in the middle of the batch
    other = stage.server(stream, 1)
    until(lambda: len(other._waiting) == 2, client.poll, lambda: other.poll(-1))
    batch = other.poll(4)
    assert batch is not None
    other.reply(batch, decide(loaded(4), batch))
    answered: list[int] = []
    until(lambda: len(answered) == 2, lambda: answered.extend(client.poll()))
    assert sorted(answered) == [0, 1]
    np.testing.assert_array_equal(memory.blocks[1].arrays["decision/value"][0], [300, 303])
    np.testing.assert_array_equal(memory.blocks[1].arrays["version"][0], [4, 4])


def test_the_requests_of_a_client_that_left_are_dropped(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    server = stage.server(stream)
    leaving, staying = stage.client(stream, memory, 0), stage.client(stream, stage.memory(), 1)
    ask(leaving, server, 0, [Cell(memory.blocks[0], 0)])
    ask(staying, server, 0, [Cell(staying._memory.blocks[0], 0)])
    batch = server.poll(0)
    assert batch is not None
    leaving.close()
    server.reply(batch, decide(loaded(), batch))
    assert answers(staying, server) == [0]
    until(lambda: len(server._links) == 1, lambda: server.poll(0))


@pytest.mark.parametrize(
    "message",
    [
        Request(0, [], [], 0),
        Request(0, [0], [0, 1], 0),
        Request(0, [99], [0], 0),
        Request(0, [0], [3], 0),
        Request(0, [-1], [0], 0),
        Reply(0, 0),
    ],
    ids=["nothing", "uneven", "no such block", "no such row", "negative", "a reply"],
)
def test_an_invalid_request_closes_only_its_connection(stage: Stage, message: Request | Reply) -> None:
    stream, memory = stage.requests(), stage.memory()
    server, client = stage.server(stream), stage.client(stream, memory)
    rogue = stage.client(stream, memory, 1)
    ask(rogue, server, 0, [Cell(memory.blocks[0], 0)])
    (channel,) = (link.channel for link in rogue._links.values())
    channel.send(message)  # without observations, which is one more thing wrong over TCP
    until(lambda: not server._links, lambda: server.poll(-1))
    ask(client, server, 0, [Cell(memory.blocks[1], 0)])
    assert server.poll(0) is not None


def test_an_unrequested_answer_closes_only_its_connection(stage: Stage) -> None:
    stream, memory = stage.requests(), stage.memory()
    server, client = stage.server(stream), stage.client(stream, memory)
    ask(client, server, 0, [Cell(memory.blocks[0], 0)])
    (former,) = server._links
    former.channel.send(Reply(99, 0))

    def asked_again() -> bool:
        return former not in server._links and len(server._waiting) == 1

    until(asked_again, client.poll, lambda: server.poll(-1))


def test_inline_requests_wait_for_their_version(inproc: Stage) -> None:
    memory, store = inproc.memory(), inproc.world.stores["policy"]
    client = InlineClient(CountingPolicy(), store, memory, Meter.unshared())
    assert client.post(0, [Cell(memory.blocks[0], 0)], 0) is False  # nothing was published yet
    assert client.poll() == []
    store.push(0, np.zeros(1, np.float32))
    assert client.poll() == [0]
    assert client.post(1, [Cell(memory.blocks[1], 0)], 2) is False
    assert client.post(2, [Cell(memory.blocks[2], 0)], 0) is True
    store.push(2, np.full(1, 9.0, np.float32))
    assert client.poll() == [1]
    assert memory.blocks[1].arrays["version"][0].tolist() == [2, 2]
    assert memory.blocks[1].arrays["decision/value"][0].tolist() == [9.0, 9.0]


def test_a_relaxed_inline_request_is_answered_by_an_older_version(inproc: Stage) -> None:
    memory, store = inproc.memory(), inproc.world.stores["policy"]
    client = InlineClient(CountingPolicy(), store, memory, Meter.unshared())
    store.push(3, np.zeros(1, np.float32))
    assert client.post(0, [Cell(memory.blocks[0], 0)], 7) is False
    client.relax(0, 0)
    assert client.poll() == [0]


def test_trees_of_observations_and_decisions_keep_their_shape(stage: Stage) -> None:
    spec = BlockSpec(
        1,
        2,
        {"camera": {"left": ArraySpec((2, 2), "uint8")}, "speed": ArraySpec((), "float32")},
        {**DECISION_SPEC, "action": {"arm": ArraySpec((2,), "float32"), "grip": ArraySpec((), "int64")}},
    )
    stream, memory = stage.requests(spec), stage.memory(2, spec)
    client, server = stage.client(stream, memory), stage.server(stream)
    memory.blocks[1].arrays["observation/camera/left"][1] = 7
    memory.blocks[1].arrays["observation/speed"][1] = [3.5, 4.5]
    memory.blocks[1].arrays["first"][1] = [True, False]
    ask(client, server, 0, [Cell(memory.blocks[1], 1)])
    batch = server.poll(0)
    assert batch is not None
    tree = from_leaves(batch.observation)
    assert tree["camera"]["left"].shape == (2, 2, 2)
    assert tree["camera"]["left"].min() == 7
    assert tree["speed"].tolist() == [3.5, 4.5]
    assert batch.first.tolist() == [True, False]
    decision = {
        "action": {"arm": np.array([[1, 2], [3, 4]], np.float32), "grip": np.array([5, 6])},
        "value": np.array([7, 8], np.float32),
    }
    server.reply(batch, Answer(flat_decision(decision), 0))
    assert answers(client, server) == [0]
    assert memory.blocks[1].arrays["decision/action/arm"][1].tolist() == [[1, 2], [3, 4]]
    assert memory.blocks[1].arrays["decision/action/grip"][1].tolist() == [5, 6]
    assert memory.blocks[1].arrays["decision/value"][1].tolist() == [7, 8]


def test_decisions_are_written_from_the_given_lane_on(inproc: Stage) -> None:
    memory = inproc.memory()
    cells = [Cell(memory.blocks[0], 0), Cell(memory.blocks[1], 1)]
    decision = {"decision/value": np.arange(6, dtype=np.float32)}
    write_decision(cells, decision, version=1, start=2)
    assert memory.blocks[0].arrays["decision/value"][0].tolist() == [2, 3]
    assert memory.blocks[1].arrays["decision/value"][1].tolist() == [4, 5]


def test_one_cell_is_gathered_without_a_copy(inproc: Stage) -> None:
    memory = inproc.memory()
    rows = gather([Cell(memory.blocks[0], 1)])
    assert np.shares_memory(rows.observation[""], memory.blocks[0].arrays["observation"])
    assert np.shares_memory(rows.first, memory.blocks[0].arrays["first"])


def test_a_policy_stays_as_it_is_while_nothing_is_published(inproc: Stage) -> None:
    store = HostParameterStore.create("policy")
    policy = CountingPolicy()
    client = InlineClient(policy, store, inproc.memory(), Meter.unshared())
    assert client.poll() == []
    assert policy.version == -1
    store.memory.close()


def test_a_policy_gets_the_position_of_every_lane(stage: Stage) -> None:
    spec = BlockSpec(2, 2, ArraySpec((3,), "float32"), DECISION_SPEC, positions=True)
    stream, memory = stage.requests(spec), stage.memory(spec=spec)
    client, server = stage.client(stream, memory), stage.server(stream)
    for index in (0, 2):
        memory.blocks[index].arrays["position"][...] = [index / 4, index / 4 + 0.125]
    ask(client, server, 5, [Cell(memory.blocks[2], 1), Cell(memory.blocks[0], 1)])
    batch = server.poll(0)
    assert batch is not None
    server.reply(batch, Answer(decide_rows(loaded(), batch), 0))
    assert answers(client, server) == [5]
    assert memory.blocks[2].arrays["decision/value"][1].tolist() == [0.5, 0.625]
    assert memory.blocks[0].arrays["decision/value"][1].tolist() == [0.0, 0.125]


def test_a_policy_gets_the_memory_of_every_lane_back(stage: Stage) -> None:
    spec = BlockSpec(2, 2, ArraySpec((3,), "float32"), MEMORY_SPEC)
    stream, memory = stage.requests(spec), stage.memory(spec=spec)
    client, server = stage.client(stream, memory), stage.server(stream)
    observe(memory)
    for index, remembered in ((2, 5), (0, 8)):
        memory.blocks[index].arrays["state"][1] = [[remembered, 0], [remembered + 1, 0]]
    memory.blocks[0].arrays["first"][1] = [False, True]
    ask(client, server, 5, [Cell(memory.blocks[2], 1), Cell(memory.blocks[0], 1)])
    batch = server.poll(0)
    assert batch is not None
    np.testing.assert_array_equal(batch.state[""][:, 0], [5, 6, 8, 9])
    policy = CountingPolicy(memory=True)
    decision = policy.act(from_leaves(batch.observation), tree_of(batch.state), batch.first)
    server.reply(batch, Answer(flat_decision(decision), 0))
    assert answers(client, server) == [5]
    np.testing.assert_array_equal(memory.blocks[2].arrays["decision/state"][1, :, 0], [6, 7])
    np.testing.assert_array_equal(memory.blocks[0].arrays["decision/state"][1, :, 0], [9, 1])
