"""From options to a scheduler over hosts: where it listens, who may join, who starts the agents."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from srl.experiments.options import TrainOptions
from srl.schedulers.agent_messages import AGENTS, Messages, codec
from srl.schedulers.by_hand import ByHand
from srl.schedulers.fleet import Hosting
from srl.schedulers.hosts import HostsScheduler
from srl.schedulers.join_secret import DEFAULT, find_or_make_secret
from srl.schedulers.memory import RunMemory
from srl.schedulers.processes import PRELOAD
from srl.transports.tcp import TcpTransport

DEFAULT_PORT = 0


def hosts_scheduler(
    run: str, options: TrainOptions, memory: RunMemory, logs: Path, preload: tuple[str, ...]
) -> HostsScheduler:
    host, port = parse_address(options.bind)
    join_secret = find_or_make_secret(options.secret_file or DEFAULT)
    path = tuple(entry for entry in sys.path if entry)
    hosting = Hosting(run, secrets.token_bytes(32), (*PRELOAD, *preload), path, options.encrypt)
    listener = TcpTransport(join_secret, AGENTS, host, port, encrypt=True, codec=codec)
    engine = ByHand(secret_file=options.secret_file)
    return HostsScheduler(
        hosting,
        memory,
        listener.listen("the controller", Messages),
        join_secret,
        engine,
        options.hosts,
        logs,
        options.hosts_timeout,
    )


def parse_address(text: str) -> tuple[str, int]:
    """`10.0.0.1:7700`, or a host alone: then any free port."""
    host, separator, port = text.rpartition(":")
    if not separator:
        return text, DEFAULT_PORT
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"wanted an address like 10.0.0.1:7700, found {text!r}")
    return host, int(port)
