"""The line from an agent to its controller. It may break: the agent and its workers go on, and dial again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from srl.api.transport import Channel, ChannelClosed, Message, PeerSilent
from srl.base.tree import Array
from srl.schedulers.hosts.messages import CONTROLLER_SILENCE, Gone, Heard, Refused, Welcome

REDIAL_SECONDS = 0.5
ANSWER_SECONDS = 5.0
MAX_KEPT = 100_000
"""News that wait until a controller has written them down; of more, the oldest are lost."""


class ControllerLine:
    """Tells a controller whose process died from one that cannot be reached: the kernel of its host closes the
    connections of a dead process. Then nobody else takes our workers' places, and they go on for `headless` seconds.
    After silence somebody may: ChannelClosed is raised, and the workers must end."""

    def __init__(
        self,
        channel: Channel,
        dial: Callable[[], Channel],
        headless: float,
        watch: Callable[[Channel], None],
    ) -> None:
        self._channel: Channel | None = channel
        self._dial = dial
        self._headless = headless
        self._watch = watch
        self._heard = time.monotonic()
        self._lost_at = 0.0
        self._dialled = 0.0
        self._calling: Channel | None = None
        self._news: deque[tuple[Heard | Gone, list[Array]]] = deque(maxlen=MAX_KEPT)
        self._number = 0
        watch(channel)

    @property
    def channel(self) -> Channel | None:
        """None while there is no controller."""
        return self._channel

    def send(self, message: Message, arrays: Sequence[Array] = ()) -> bool:
        """False if nobody is there. This is for the present only."""
        if self._channel is not None:
            try:
                self._channel.send(message, arrays)
                return True
            except ChannelClosed as error:
                self._break(error)
        return False

    def tell(self, news: Heard | Gone, arrays: Sequence[Array] = ()) -> bool:
        """The same for news of workers. They are kept until they are `safe`, because a controller may die with what it
        has just been sent: whoever takes its place hears them again."""
        self._number += 1
        news = msgspec.structs.replace(news, number=self._number)
        if self._headless > 0:
            self._news.append((news, list(arrays)))
        return self.send(news, arrays)

    def forget(self, safe: int) -> None:
        """News up to this number need not be repeated."""
        while self._news and self._news[0][0].number <= safe:
            self._news.popleft()

    def receive(self) -> Iterator[tuple[Message, list[Array]]]:
        while self._channel is not None:
            try:
                received = self._channel.receive()
                if received is None:
                    self._channel.flush()
                    break
            except ChannelClosed as error:
                self._break(error)
                return
            self._heard = time.monotonic()
            yield received[0], received[1]
        if self._channel is not None and time.monotonic() - self._heard > CONTROLLER_SILENCE:
            raise PeerSilent(f"nothing was heard from the controller for {CONTROLLER_SILENCE:.0f} s")

    def _break(self, error: ChannelClosed) -> None:
        assert self._channel is not None
        if self._headless <= 0 or isinstance(error, PeerSilent):
            raise error
        self._channel.close()
        self._channel = None
        self._lost_at = time.monotonic()

    def redial(self, greeting: Callable[[], Message]) -> bool:
        """Try to reach a controller again; True once it welcomed us. Raises ChannelClosed if there will be none, or it
        does not know us any more."""
        if self._channel is not None:
            return False
        now = time.monotonic()
        if self._calling is None:
            if now - self._lost_at > self._headless:
                raise ChannelClosed(f"no controller came back within {self._headless:.0f} s")
            if now - self._dialled < REDIAL_SECONDS:
                return False
            self._dialled = now
            try:
                self._calling = self._dial()
                self._calling.send(greeting())
            except ChannelClosed:
                self._hang_up()
                return False
        return self._answered(now)

    def _answered(self, now: float) -> bool:
        assert self._calling is not None
        try:
            self._calling.flush()
            received = self._calling.receive()
        except ChannelClosed:
            self._hang_up()
            return False
        if received is None:
            if now - self._dialled > ANSWER_SECONDS:
                self._hang_up()
            return False
        if isinstance(received[0], Refused) or not isinstance(received[0], Welcome):
            self._hang_up()
            raise ChannelClosed("the controller has replaced our workers")
        self._channel, self._calling = self._calling, None
        self._heard = now
        self._watch(self._channel)
        return True

    def repeat_news(self) -> None:
        """What happened while there was no controller, and what the last one may not have dealt with."""
        for news, arrays in self._news:
            self.send(news, arrays)

    def _hang_up(self) -> None:
        if self._calling is not None:
            self._calling.close()
            self._calling = None

    def close(self) -> None:
        self._hang_up()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
