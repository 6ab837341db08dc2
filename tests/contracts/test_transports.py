"""The transport contract, checked for every transport."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from srl.api.transport import Channel, ChannelClosed, Listener, Message, Transport
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.transports.host import HostTransport
from srl.transports.inproc import InprocTransport
from srl.transports.join_ticket import Identity
from srl.transports.tcp import TcpTransport
from srl.transports.tls import TlsTransport

Result = TypeVar("Result")
Received = tuple[Message, list[Array], Memory | None]


class Count(Message, frozen=True):
    number: int


class Text(Message, frozen=True):
    words: str


class Other(Message, frozen=True):
    number: int


@dataclass
class Pair:
    """A listener and its connections, which are closed with it."""

    transport: Transport
    listener: Listener
    opened: list[Channel] = field(default_factory=list)

    def connect(self, messages: object = Count | Text) -> tuple[Channel, Channel]:
        near = self.transport.connect(self.listener.address, messages)
        self.opened.append(near)

        def accepted() -> Channel | None:
            near.flush()
            return self.listener.accept()

        far = until(accepted)
        self.opened.append(far)
        return near, far

    def close(self) -> None:
        for channel in self.opened:
            channel.close()
        self.listener.close()


def until(attempt: Callable[[], Result | None], timeout: float = 60.0) -> Result:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        result = attempt()
        if result is not None:
            return result
    raise TimeoutError("timed out")


def get(channel: Channel, sender: Channel | None = None) -> Received:
    def attempt() -> Received | None:
        if sender is not None:
            sender.flush()
        return channel.receive()

    return until(attempt)


def closed(channel: Channel) -> ChannelClosed:
    def attempt() -> ChannelClosed | None:
        try:
            assert channel.receive() is None
        except ChannelClosed as error:
            return error
        return None

    return until(attempt)


@pytest.fixture(params=["inproc", "host", "tcp", "tcp encrypted", "tls"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Transport:
    if request.param == "inproc":
        return InprocTransport()
    if request.param == "host":
        return HostTransport(tmp_path / "sockets")
    if request.param == "tls":
        return TlsTransport(Identity.create(tmp_path / "controller.pem"), "tests")
    return TcpTransport(bytes(range(32)), "run", encrypt="encrypted" in request.param)


@pytest.fixture
def pair(transport: Transport) -> Iterator[Pair]:
    opened = Pair(transport, transport.listen("trainer/0", Count | Text))
    yield opened
    opened.close()
    gc.collect()


def test_classes_implement_the_contract(pair: Pair) -> None:
    near, far = pair.connect()
    assert isinstance(pair.transport, Transport)
    assert isinstance(pair.listener, Listener)
    assert isinstance(near, Channel)
    assert isinstance(far, Channel)
    assert near.peer == pair.listener.address


def test_nothing_is_received_before_something_is_sent(pair: Pair) -> None:
    assert pair.listener.accept() is None
    near, far = pair.connect()
    assert near.receive() is None
    assert far.receive() is None
    assert near.flush()


def test_messages_keep_their_order_in_both_directions(pair: Pair) -> None:
    near, far = pair.connect()
    for number in range(100):
        near.send(Count(number))
        far.send(Text(str(number)))
    assert [get(far)[0] for _ in range(100)] == [Count(number) for number in range(100)]
    assert [get(near)[0] for _ in range(100)] == [Text(str(number)) for number in range(100)]


def test_received_arrays_belong_to_the_receiver(pair: Pair) -> None:
    near, far = pair.connect()
    sent = np.arange(6, dtype=np.float32).reshape(2, 3)
    near.send(Count(1), [sent, np.array(True), np.zeros((0, 4), np.int16), sent.T])
    sent[:] = -1  # the caller may reuse its arrays at once
    _, (first, second, third, fourth), memory = get(far)
    assert memory is None
    assert first.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second.shape == ()
    assert second
    assert third.shape == (0, 4)
    assert third.dtype == np.int16
    assert fourth.tolist() == [[0, 3], [1, 4], [2, 5]]
    first[0, 0] = 7  # writable, and not shared
    assert sent[0, 0] == -1


@pytest.mark.parametrize("num_bytes", [2**15, 2**16 - 200, 2**16, 2**18 + 1, 5 * 2**20])
def test_arrays_of_any_size_arrive_complete(pair: Pair, num_bytes: int) -> None:
    near, far = pair.connect()
    sent = np.random.default_rng(num_bytes).integers(0, 256, num_bytes, dtype=np.uint8)
    for number in range(3):
        near.send(Count(number), [sent, sent[:7]])
    for number in range(3):
        message, (whole, part), _ = get(far, near)
        assert message == Count(number)
        assert np.array_equal(whole, sent)
        assert np.array_equal(part, sent[:7])


def test_a_thousand_arrays_fit_into_one_message(pair: Pair) -> None:
    near, far = pair.connect()
    near.send(Count(1), [np.full(3, number) for number in range(1000)])
    near.send(Count(2), [np.full(30, number) for number in range(1000)])
    for size in (3, 30):
        _, arrays, _ = get(far, near)
        assert [array.tolist() for array in arrays] == [[number] * size for number in range(1000)]


def test_messages_beyond_the_kernel_buffers_wait_in_order(pair: Pair) -> None:
    near, far = pair.connect()
    sizes = [(number * 7919) % 40_000 for number in range(600)]
    waiting = False
    for number, size in enumerate(sizes):
        near.send(Count(number), [np.full(size, number % 251, np.uint8)])
        waiting = waiting or not near.flush()
    assert waiting or near.fileno() == -1, "the test must fill the kernel's buffers"
    for number, size in enumerate(sizes):
        message, (array,), _ = get(far, near)
        assert message == Count(number)
        assert array.size == size
        assert (array == number % 251).all()
    assert until(lambda: near.flush() or None)


def test_messages_sent_before_the_other_side_accepts_are_kept(pair: Pair) -> None:
    near = pair.transport.connect(pair.listener.address, Count | Text)
    pair.opened.append(near)
    for number in range(10):
        near.send(Count(number))

    def accepted() -> Channel | None:
        near.flush()
        return pair.listener.accept()

    far = until(accepted)
    pair.opened.append(far)
    assert [get(far, near)[0] for _ in range(10)] == [Count(number) for number in range(10)]


def test_several_clients_have_separate_channels(pair: Pair) -> None:
    channels = [pair.connect() for _ in range(5)]
    for number, (near, _) in enumerate(channels):
        near.send(Count(number))
    assert [get(far, near)[0] for near, far in channels] == [Count(number) for number in range(5)]


def test_memory_is_shared_where_the_channel_says_so(pair: Pair) -> None:
    near, far = pair.connect()
    memory = Memory.create("test", 4096)
    if not near.shares_memory:
        with pytest.raises(ValueError, match="memory"):
            near.send(Count(1), memory=memory)
        memory.close()
        return
    near.send(Count(1), [np.ones(100_000)], memory)
    near.send(Count(2), memory=memory)
    _, _, first = get(far)
    _, _, second = get(far)
    assert first is not None
    assert second is not None
    memory.bytes[5] = 42
    first.bytes[6] = 43
    assert second.bytes[5:7].tolist() == [42, 43]
    assert memory.bytes[6] == 43
    for one in {id(one): one for one in (memory, first, second)}.values():
        one.close()


def test_a_close_is_reported_after_everything_was_received(pair: Pair) -> None:
    near, far = pair.connect()
    far.send(Count(-1))  # never read by the other side
    near.send(Count(1))
    near.send(Count(2), [np.zeros(100_000)])
    assert until(lambda: near.flush() or None)
    near.close()
    assert get(far)[0] == Count(1)
    assert get(far)[0] == Count(2)
    closed(far)
    with pytest.raises(ChannelClosed):
        far.receive()


def test_sending_to_a_closed_peer_raises(pair: Pair) -> None:
    near, far = pair.connect()
    far.close()

    def attempt() -> ChannelClosed | None:
        try:
            near.send(Count(1))
        except ChannelClosed as error:
            return error
        return None

    until(attempt)


def test_a_closed_channel_raises_and_may_be_closed_again(pair: Pair) -> None:
    near, _ = pair.connect()
    near.close()
    near.close()
    with pytest.raises(ChannelClosed):
        near.send(Count(1))
    with pytest.raises(ChannelClosed):
        near.receive()
    with pytest.raises(ChannelClosed):
        near.flush()


def test_connecting_to_a_closed_listener_raises(pair: Pair) -> None:
    pair.listener.close()
    with pytest.raises(ChannelClosed):
        pair.transport.connect(pair.listener.address, Count)


def test_closing_the_listener_closes_pending_connections(pair: Pair) -> None:
    near = pair.transport.connect(pair.listener.address, Count)
    pair.opened.append(near)
    pair.listener.close()
    closed(near)


def test_an_accepted_channel_outlives_its_listener(pair: Pair) -> None:
    near, far = pair.connect()
    pair.listener.close()
    near.send(Count(1))
    assert get(far, near)[0] == Count(1)


def test_a_name_is_free_again_when_its_listener_closes(pair: Pair) -> None:
    pair.listener.close()
    pair.listener = pair.transport.listen("trainer/0", Count | Text)
    near, far = pair.connect()
    near.send(Count(1))
    assert get(far)[0] == Count(1)


def test_sending_an_unsupported_type_raises(pair: Pair) -> None:
    near, far = pair.connect()
    with pytest.raises(TypeError, match="cannot send Other on this channel, which carries Count, Text"):
        near.send(Other(1))
    with pytest.raises(TypeError, match="complex"):
        near.send(Count(1), [np.zeros(2, np.complex64)])
    near.send(Count(2))
    assert get(far)[0] == Count(2)


def test_a_message_of_another_union_closes_only_the_channel_of_its_sender(pair: Pair) -> None:
    honest, honest_far = pair.connect()
    wrong, wrong_far = pair.connect(Other)
    wrong.send(Other(1))
    assert "violated the protocol" in str(closed(wrong_far))
    assert pair.listener.refused == {"frame": 1}
    with pytest.raises(ChannelClosed):
        wrong_far.send(Count(1))
    closed(wrong)
    honest.send(Count(3))
    assert get(honest_far, honest)[0] == Count(3)


def test_the_error_for_an_address_of_another_transport_shows_the_expected_form(pair: Pair) -> None:
    with pytest.raises(ChannelClosed, match="expected an address like"):
        pair.transport.connect("unknown:5", Count)


def test_malformed_addresses_are_refused(pair: Pair) -> None:
    prefix = pair.listener.address.partition(":")[0]
    for text in ("", "\0", "a\0b", "/a\0b", "\ud800", "x" * 5000, ":", "::1", "a:99999/b", "a:٣/b", "/../..", ".:1/a"):
        for address in (text, f"{prefix}:{text}", f"{pair.listener.address}{text}\0"):
            with pytest.raises(ChannelClosed):
                pair.transport.connect(address, Count)


def test_names_may_contain_any_characters(pair: Pair) -> None:
    for name in ("a\0b", "../../escape", "a;b", "ünïcode", "a b%20", "tcp:1", "x" * 300):
        pair.listener.close()
        pair.listener = pair.transport.listen(name, Count | Text)
        near, far = pair.connect()
        near.send(Count(1))
        assert get(far)[0] == Count(1)
