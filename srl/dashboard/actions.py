"""Actions on a run that the page offers, each through the door that a command uses, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import msgspec

from srl.api.transport import Message
from srl.controller.control_socket import EvaluateRequest, ResultReply, SaveRequest, ScaleRequest, StopRequest, ask
from srl.dashboard.catalog import Entry

RECORD_SECONDS = 600.0
MAX_WORKERS = 100_000


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request."""

    key: str
    action: Literal["stop", "save", "evaluate", "scale", "record"]
    group: str = ""
    count: int = 0


class ActionError(Exception):
    """The action was not possible; the message says why."""


def carry_out(entry: Entry, action: Action) -> str:
    """Carry out an action, and describe the result. Raises ActionError."""
    if action.action == "record":
        return _record(entry.directory.path)
    if entry.runtime is None:
        raise ActionError(f"{entry.summary.name} is not active")
    requests: dict[str, Message] = {
        "stop": StopRequest(),
        "save": SaveRequest(),
        "evaluate": EvaluateRequest(),
        "scale": ScaleRequest(action.group, min(action.count, MAX_WORKERS), False),
    }
    answer = ask(entry.runtime, requests[action.action])
    if not isinstance(answer, ResultReply):
        raise ActionError(f"{entry.summary.name} does not answer; it may have just ended")
    if not answer.ok:
        raise ActionError(answer.text)
    return answer.text


def _record(path: Path) -> str:
    """Run `srl record`, which needs the environment and torch, in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "srl", "record", str(path)],
            capture_output=True, text=True, timeout=RECORD_SECONDS, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        text = f"no video was written within {RECORD_SECONDS:.0f} s; try `srl record` in a terminal"
        raise ActionError(text) from None
    if done.returncode != 0:
        raise ActionError(done.stderr.strip()[-2000:] or "srl record failed")
    return done.stdout.strip().splitlines()[-1]
