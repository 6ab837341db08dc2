"""An agent's connection to its controller. While it is down, the agent and its workers keep running."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec

from srl.api.transport import Channel, ChannelClosed, Message, PeerUnresponsive
from srl.base.tree import Array
from srl.schedulers.hosts.messages import CONTROLLER_TIMEOUT, JoinAccepted, WorkerExited, WorkerReport
from srl.transports.tcp_channel import peer_activity

RECONNECT_SECONDS = 0.5
ANSWER_SECONDS = 5.0
MAX_REPORTS = 100_000  # reports kept until a controller has recorded them; beyond this, the oldest are lost


class ControllerConnection:
    """Connection that tells a controller whose process died from one that cannot be reached. The kernel closes the
    connections of a dead process; this host's workers then continue for up to `headless` seconds, until another
    controller takes over the run. A controller that merely stops answering may be alive and replace them, so
    ChannelClosed is raised and they must end."""

    def __init__(
        self, channel: Channel, connect: Callable[[], Channel], headless: float, watch: Callable[[Channel], None]
    ) -> None:
        self._channel: Channel | None = channel
        self._connect = connect
        self._headless = headless
        self._watch = watch
        self._last_message = time.monotonic()
        self._lost_at = 0.0
        self._died = False
        self._last_attempt = 0.0
        self._pending: Channel | None = None
        self._reports: deque[tuple[WorkerReport | WorkerExited, list[Array]]] = deque(maxlen=MAX_REPORTS)
        self._number = 0
        watch(channel)

    @property
    def channel(self) -> Channel | None:
        """Channel to the controller; None while there is no controller."""
        return self._channel

    @property
    def controller_died(self) -> bool:
        """Whether the controller's process is gone, and not only the connection: nothing listens at its address."""
        return self._channel is None and self._died

    def send(self, message: Message, arrays: Sequence[Array] = ()) -> bool:
        """Send a message that only the current controller needs. Return False if there is no controller."""
        if self._channel is not None:
            try:
                self._channel.send(message, arrays)
                return True
            except ChannelClosed as error:
                self._break(error)
        return False

    def report(self, report: WorkerReport | WorkerExited, arrays: Sequence[Array] = ()) -> bool:
        """Send a report about a worker, and keep it for the controller's successor until it is recorded."""
        self._number += 1
        report = msgspec.structs.replace(report, number=self._number)
        if self._headless > 0:
            self._reports.append((report, list(arrays)))
        return self.send(report, arrays)

    def discard(self, recorded: int) -> None:
        """Discard the reports numbered up to `recorded`; the controller has recorded them."""
        while self._reports and self._reports[0][0].number <= recorded:
            self._reports.popleft()

    def repeat_reports(self) -> None:
        """Send a new controller all reports that its predecessor may not have recorded."""
        for report, arrays in self._reports:
            self.send(report, arrays)

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
            self._last_message = time.monotonic()
            yield received[0], received[1]
        if (
            self._channel is not None
            and time.monotonic() - self._last_message > CONTROLLER_TIMEOUT
            and peer_activity(self._channel.fileno()).data_age > CONTROLLER_TIMEOUT
        ):
            raise PeerUnresponsive(f"no message from the controller for {CONTROLLER_TIMEOUT:.0f} s")

    def _break(self, error: ChannelClosed) -> None:
        assert self._channel is not None
        if self._headless <= 0 or isinstance(error, PeerUnresponsive):
            raise error
        self._channel.close()
        self._channel = None
        self._lost_at, self._died = time.monotonic(), False

    def reconnect(self, rejoin: Callable[[], Message]) -> bool:
        """Try to reach a controller. Return True once one has accepted this host. Raises ChannelClosed after `headless`
        seconds without a controller, or if the controller has replaced this host's workers."""
        if self._channel is not None:
            return False
        now = time.monotonic()
        if self._pending is None:
            if now - self._lost_at > self._headless:
                raise ChannelClosed(f"no controller reconnected within {self._headless:.0f} s")
            if now - self._last_attempt < RECONNECT_SECONDS:
                return False
            self._last_attempt = now
            try:
                self._pending = self._connect()
            except ChannelClosed as error:  # refused: the controller died; a partition makes its host unresponsive
                self._died |= not isinstance(error, PeerUnresponsive)
                return False
            with contextlib.suppress(ChannelClosed):  # `_accepted` detects this on its own
                self._pending.send(rejoin())
        return self._accepted(self._pending, now)

    def _accepted(self, pending: Channel, now: float) -> bool:
        try:
            pending.flush()
            received = pending.receive()
        except ChannelClosed:  # something listened, so that the controller may be alive
            self._close_pending()
            return False
        if received is None:
            if now - self._last_attempt > ANSWER_SECONDS:
                self._close_pending()
            return False
        if not isinstance(received[0], JoinAccepted):
            self._close_pending()
            raise ChannelClosed("the controller has replaced the workers of this host")
        self._channel, self._pending = pending, None
        self._last_message = now
        self._watch(pending)
        return True

    def _close_pending(self) -> None:
        if self._pending is not None:
            self._pending.close()
            self._pending = None

    def close(self) -> None:
        self._close_pending()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
