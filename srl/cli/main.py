"""Entry point of the command line: finds the command, reads its options, runs it, and explains errors."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from srl import __version__
from srl.base import errors
from srl.base.errors import nearest
from srl.base.object_names import load_object
from srl.base.process import recorded_stop_requests

GROUPS = {
    "Train": ("train", "sweep", "resume", "submit", "attach"),
    "Use trained policies": ("eval", "compare", "plot", "episodes", "record", "collect", "export", "league"),
    "Watch and control runs": ("dashboard", "ps", "logs", "save", "scale", "change", "stop", "agent"),
    "Check and measure": ("doctor", "check-env", "check-algo", "replay", "verify", "chaos", "bench"),
    "Help": ("help", "recipes"),
}
CLASSES = {
    "train": ("Train", "Resume", "Submit", "Attach"),
    "sweep": ("Sweep",),
    "results": ("Eval", "Compare", "Plot", "Episodes", "Record", "Export", "League"),
    "datasets": ("Collect",),
    "streams": ("Replay",),
    "control": ("Ps", "Logs", "Save", "Scale", "Change", "Stop"),
    "cluster": ("Agent", "Chaos"),
    "dashboard": ("Dashboard",),
    "checks": ("Doctor", "CheckEnv", "CheckAlgo", "Verify", "Bench"),
    "topics": ("Help", "Recipes"),
}
"""Command classes by module of this package. The class `CheckEnv` is the command `check-env`."""
COMMANDS = {
    re.sub("(?<=[a-z])(?=[A-Z])", "-", kind).lower(): f"srl.cli.{module}:{kind}"
    for module, kinds in CLASSES.items()
    for kind in kinds
}
REPORTED = (ValueError, LookupError, ImportError, OSError, RuntimeError, MemoryError)
"""Errors whose messages are for the user. Any other error raised by SRL is a bug."""
HELP, HELP_ALL = ("-h", "--help"), "--help-all"


def command_class(name: str) -> type[Any]:
    found: type[Any] = load_object(COMMANDS[name])
    return found


def parse(arguments: Sequence[str]) -> Any:
    """Parse the arguments into a command that is ready to `run`. Raises ValueError for invalid arguments."""
    from srl.cli.flags import parse_command
    from srl.cli.help import HelpText, command_help, has_long_help, overview

    name, words = (arguments[0] if arguments else ""), list(arguments[1:])
    if name in ("", *HELP):
        return HelpText(overview())
    if name == "--version":
        return HelpText(f"srl {__version__}")
    if name not in COMMANDS:
        raise ValueError(f"no command {name!r}{nearest(name, COMMANDS)}")
    kind = command_class(name)
    if HELP_ALL in words or any(word in HELP for word in words):
        return HelpText(command_help(kind, name, words, everything=HELP_ALL in words))
    try:
        return parse_command(kind, name, words)
    except ValueError as error:
        text = str(error)
        shown = f"`srl {name} {HELP_ALL if has_long_help(kind, name) else HELP[-1]}`"
        see = f"\nSee {shown}." if "\n" in text else f" (see {shown})"
        raise ValueError(text if "help" in text else text + see) from error


def main(arguments: list[str] | None = None) -> int:
    """Run `srl` and return its exit code. Errors that a user can fix are printed as a message, those in the user's code
    with its part of the traceback; bugs in SRL raise."""
    try:
        with recorded_stop_requests():
            return int(parse(sys.argv[1:] if arguments is None else arguments).run())
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output is gone (`srl ps --all | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at exit
        return 0
    except Exception as error:
        code = _explain(error)
        return 130 if _during_interrupt(error) else code


def _during_interrupt(error: BaseException) -> bool:
    """Return whether the error was raised while a KeyboardInterrupt ended the command."""
    while error.__context__ is not None:
        error = error.__context__
        if isinstance(error, KeyboardInterrupt):
            return True
    return False


def _explain(error: Exception) -> int:
    from srl.experiments.session.run import RunFailed
    from srl.storage.checkpoints import CheckpointError

    if not isinstance(error, REPORTED) and not errors.user_traceback(error):
        raise error
    sys.stdout.flush()
    print(errors.explain(error), file=sys.stderr)
    return 1 if isinstance(error, (RunFailed, CheckpointError)) else 2
