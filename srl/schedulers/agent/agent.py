"""A host's agent: runs workers for the controller and reports on them."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from srl.api.control import Evaluated, InjectFault, Published, Ready, Register, Stop
from srl.api.scheduler import Died, Event, OrphanWorker, WorkerMessage
from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import WorkerId
from srl.base.meter import WORDS, Meter
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent.connection import ControllerConnection
from srl.schedulers.agent.uploads import LogUpload, StateUpload
from srl.schedulers.hosts import messages
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.scheduler import ProcessScheduler
from srl.schedulers.local.zygote import Network
from srl.transports.runtime_dir import make_runtime
from srl.transports.tcp import TcpTransport
from srl.workers.evaluator import EVALUATED
from srl.workers.fault_injection import Faults, freeze
from srl.workers.wait_set import WaitSet

LEAVE_SECONDS = 4.0


class Agent:
    """Agent whose workers are child processes. Without a controller, they keep running for `headless` seconds."""

    def __init__(
        self,
        channel: Channel,
        accepted: messages.JoinAccepted,
        bind: str,
        join_message: Callable[[], messages.Join],
        connect: Callable[[], Channel],
    ) -> None:
        settings = accepted.settings
        self.run = settings.run
        self.host = accepted.host
        self.proof = settings.proof
        self._secret = settings.secret
        self._join_message = join_message
        self._workers: dict[WorkerId, OrphanWorker] = {}  # what a new controller would need to know about each
        replay_dir = Path(settings.replay_dir) if settings.replay_dir else None
        memory = self._memory = RunMemory.create(accepted.policies, with_push_event=True, replay_dir=replay_dir)
        self._runtime = make_runtime(self.run)
        self._logs = LogUpload(self.host)
        network = Network(settings.secret, bind, self.host, settings.encrypt)
        self._processes = ProcessScheduler(
            self.run, memory, self._runtime, self._logs, settings.preload, settings.path, network
        )
        self._wait_set = WaitSet()
        self._connection = ControllerConnection(channel, connect, settings.headless, self._wait_set.watch)
        self._wait_set.watch_fd(self._memory.push_event)
        self._processes.watch(self._wait_set.fileno())
        transport = TcpTransport(settings.secret, self.run, bind, encrypt=settings.encrypt, codec=messages.codec)
        self._relay = ParameterRelay(
            transport,
            memory.parameters,
            self._wait_set.watch,
            on_new=lambda: self._processes.send(self._processes.worker_ids(), Published()),
        )
        self._states = StateUpload(self._memory.commits, self._connection, self._relay)
        self._last_heartbeat = 0.0
        self.leaving = 0.0  # time at which this host was asked to leave; 0 if it was not
        self._announced = False
        self._listed: list[WorkerId] | None = None
        self._faults = Faults(Meter.unshared())
        self._offered = False  # whether the controller may place workers here

    def serve(self) -> bool:
        """Serve until the run ends (True) or the controller is permanently lost (False), then clean up."""
        try:
            while self.poll(messages.HEARTBEAT_SECONDS):
                pass
            return True
        except ChannelClosed:
            return False
        finally:
            self.close()

    def poll(self, timeout: float) -> bool:
        """Do one round of work, waiting up to `timeout` seconds for events. Return False if the run has ended or this
        host may leave it. Raises ChannelClosed if the controller is permanently lost."""
        if self._may_leave():
            return False
        for event in self._processes.poll(timeout):
            self._report(event)
        self._wait_set.wait(0)
        if not self._receive():
            return False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._memory.push_event)
        self._states.send()
        self._relay.poll()
        self._offer()
        self._faults.apply()
        self._send_heartbeat()
        if self._connection.reconnect(self._rejoin_message):
            self._resume_with_new_controller()
        return True

    def _offer(self) -> None:
        """Offer this host to the controller once its zygote is ready: until then, workers start sooner elsewhere."""
        if not self._offered and self._processes.ready:
            self._offered = self._connection.send(messages.RelayAddress(self._relay.address))

    def leave(self) -> None:
        """Leave the run because this host is being preempted (SIGTERM): stop the workers, upload the last committed
        states, and end. The run continues on other hosts. Safe to call from a signal handler."""
        self.leaving = self.leaving or time.monotonic()
        self._wait_set.wake()

    def _may_leave(self) -> bool:
        if not self.leaving:
            return False
        if not self._announced:
            self._announced = True
            self._connection.send(messages.HostLeaving())
            self._processes.send(self._processes.worker_ids(), Stop())
        if self._connection.channel is None or time.monotonic() - self.leaving > LEAVE_SECONDS:
            return True
        return not (self._processes.worker_ids() or self._states.in_progress)

    def close(self) -> None:
        self._processes.close()
        self._relay.close()
        self._wait_set.close()
        self._memory.close()
        shutil.rmtree(self._runtime, ignore_errors=True)
        self._connection.close()

    def _rejoin_message(self) -> messages.Rejoin:
        join = msgspec.structs.replace(self._join_message(), host=self.host)
        workers, states = list(self._workers.values()), self._states.versions()
        versions = {policy: store.version for policy, store in self._memory.parameters.items()}
        return messages.Rejoin(join, self.run, self._secret, self._relay.address, workers, states, versions)

    def _resume_with_new_controller(self) -> None:
        """Send a new controller what its predecessor had: reports, the list of workers, and states."""
        self._connection.repeat_reports()
        self._listed = None
        alive = set(self._processes.worker_ids())
        self._workers = {worker_id: worker for worker_id, worker in self._workers.items() if worker_id in alive}
        self._states.restart()

    # To the controller

    def _report(self, event: Event) -> None:
        if isinstance(event, WorkerMessage):
            self._update_worker(event.worker_id, event.message)
            if isinstance(event.message, Evaluated):
                self._send_evaluated(event.message)
            self._connection.report(messages.WorkerReport(event.worker_id, event.message))
        elif isinstance(event, Died):
            # First, so that the log and the state are complete when the controller sees the death.
            self._send_logs()
            self._states.send(at_once=True)
            words = self._processes.meter(event.worker_id).words()
            if self.leaving:
                event = Died(event.worker_id, "its host was asked to leave", clean=False, blameless=True)
            exited = messages.WorkerExited(event.worker_id, event.reason, event.clean, event.blameless)
            if self._connection.report(exited, [words[None]]):
                self._workers.pop(event.worker_id, None)
        else:
            self._connection.send(messages.HostNotice(event.text))

    def _send_evaluated(self, message: Evaluated) -> None:
        """Send the parameters that were evaluated on this host; the controller stores the best of them."""
        pulled = self._memory.parameters[message.policy].pull(EVALUATED)
        if pulled is not None and pulled[0] == message.version:
            self._connection.send(messages.TaggedParameters(message.policy, message.version, EVALUATED), [pulled[1]])

    def _update_worker(self, worker_id: WorkerId, message: Message) -> None:
        worker = self._workers.get(worker_id)
        if worker is not None and isinstance(message, Ready):
            self._workers[worker_id] = msgspec.structs.replace(worker, ready=True)
        elif worker is not None and isinstance(message, Register):
            worker.endpoints[message.name] = message.address

    def _send_heartbeat(self) -> None:
        now = time.monotonic()
        if now - self._last_heartbeat < messages.HEARTBEAT_SECONDS or self._connection.channel is None:
            return
        self._last_heartbeat = now
        worker_ids = self._processes.worker_ids()
        usages = [(self._processes.pid(worker_id), self._processes.usage(worker_id)) for worker_id in worker_ids]
        columns = [(pid, usage.cpu_percent, usage.rss_mb, usage.stopped) for pid, usage in usages]
        words = [self._processes.meter(worker_id).words() for worker_id in worker_ids]
        arrays = [
            np.array(words, np.int64).reshape(-1, WORDS),
            np.array(columns, np.float64).reshape(-1, len(messages.USAGE)),
        ]
        self._connection.send(messages.AgentHeartbeat(None if worker_ids == self._listed else worker_ids), arrays)
        self._listed = worker_ids
        self._send_logs()

    def _send_logs(self) -> None:
        channel = self._connection.channel
        if channel is not None:
            with contextlib.suppress(ChannelClosed):  # the connection detects this on its own
                self._logs.send(channel)

    # From the controller

    def _receive(self) -> bool:
        for message, arrays in self._connection.receive():
            if isinstance(message, messages.RunEnded):
                return False
            self._handle(message, arrays)
            self._send_heartbeat()  # between messages, because some take a second
        if self._connection.controller_died:
            self._states.confirm_all()
        return True

    def _handle(self, message: Any, arrays: list[Array]) -> None:
        match message:
            case messages.ControllerHeartbeat():
                self._connection.discard(message.recorded)
            case messages.StartWorker():
                self._workers[message.worker_id] = OrphanWorker(message.worker_id, False, {})
                self._processes.launch(message.worker_id, message.config, message.niceness, message.seed)
            case messages.SendToWorkers():
                self._processes.send(message.worker_ids, message.message)
            case messages.KillWorker():
                self._processes.kill(message.worker_id)
            case messages.SignalWorker():
                self._processes.signal(message.worker_id, message.number)
            case messages.DisturbHost():
                self._disturb(message)
            case messages.DumpStacks():
                self._connection.send(messages.StackDump(message.worker_id, self._processes.dump(message.worker_id)))
            case messages.FollowParameters():
                self._relay.follow(message.policy, message.address)
            case messages.StateStored():
                self._states.confirm(message.policy, message.version)
            case messages.TaggedParameters():
                store = self._memory.parameters[message.policy]
                if message.version > store.version:
                    store.push(message.version, arrays[0], (message.tag,) if message.tag else ())
            case messages.CommittedState():
                snapshot, version = self._memory.commits[message.policy], message.version
                if message.floor >= 0:
                    version = max(message.floor, self._memory.parameters[message.policy].version) + 1
                if version > snapshot.version:
                    snapshot.write(version, dict(zip(message.keys, arrays, strict=True)), message.metadata)
                    snapshot.set_durable(version)

    def _disturb(self, message: messages.DisturbHost) -> None:
        if message.fault == "freeze-host":
            own = psutil.Process()
            freeze([own.pid, *(process.pid for process in own.children(recursive=True))], message.seconds)
            return
        if message.fault == "slow-link":
            self._faults.add(InjectFault(message.fault, message.seconds))
        self._processes.disturb_host(message.worker_id, message.fault, message.seconds)
