"""Entry point of the command line: finds the command, reads its options, runs it, and explains errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from srl.base import errors
from srl.base.errors import nearest
from srl.base.object_names import load_object
from srl.base.process import recorded_stop_requests

GROUPS = {
    "Train": {
        "train": "srl.cli.train:Train",
        "resume": "srl.cli.train:Resume",
        "submit": "srl.cli.train:Submit",
        "attach": "srl.cli.train:Attach",
    },
    "Use trained policies": {
        "eval": "srl.cli.results:Eval",
        "plot": "srl.cli.results:Plot",
        "record": "srl.cli.results:Record",
        "export": "srl.cli.results:Export",
        "league": "srl.cli.results:League",
    },
    "Watch and control runs": {
        "ps": "srl.cli.control:Ps",
        "logs": "srl.cli.control:Logs",
        "scale": "srl.cli.control:Scale",
        "stop": "srl.cli.control:Stop",
        "agent": "srl.cli.cluster:Agent",
    },
    "Check and measure": {
        "doctor": "srl.cli.checks:Doctor",
        "check-env": "srl.cli.checks:CheckEnv",
        "check-algo": "srl.cli.checks:CheckAlgo",
        "chaos": "srl.cli.cluster:Chaos",
        "bench": "srl.cli.checks:Bench",
    },
    "Help": {"help": "srl.cli.help:Help"},
}
COMMANDS = {name: place for members in GROUPS.values() for name, place in members.items()}
REPORTED = (ValueError, LookupError, ImportError, OSError, RuntimeError, MemoryError)
"""Errors of SRL that are messages to the user. Any other error of ours is a bug."""
HELP, HELP_ALL = ("-h", "--help"), "--help-all"


def command_class(name: str) -> type[Any]:
    found: type[Any] = load_object(COMMANDS[name])
    return found


def parse(arguments: Sequence[str]) -> Any:
    """The command that the words mean, ready to `run`. Raises ValueError for words that cannot be understood."""
    name, words = (arguments[0] if arguments else ""), list(arguments[1:])
    if name in ("", *HELP):
        from srl.cli.help import HelpText

        return HelpText(overview_of_commands())
    if name == "--version":
        from srl import __version__
        from srl.cli.help import HelpText

        return HelpText(f"srl {__version__}")
    if name not in COMMANDS:
        raise ValueError(f"no command {name!r}{nearest(name, COMMANDS)}")
    kind = command_class(name)
    if HELP_ALL in words or any(word in HELP for word in words):
        from srl.cli.help import HelpText, command_help

        return HelpText(command_help(kind, name, words, everything=HELP_ALL in words))
    from srl.cli.flags import parse_command

    try:
        return parse_command(kind, name, words)
    except ValueError as error:
        raise ValueError(f"{error} (see `srl {name} --help`)" if "help" not in str(error) else str(error)) from error


def overview_of_commands() -> str:
    from srl.cli.help import overview

    return overview({title: {name: command_class(name) for name in members} for title, members in GROUPS.items()})


def main(arguments: list[str] | None = None) -> int:
    """Run `srl`. Errors that a user can fix are one message; those in the user's code come with their part of the
    traceback, and bugs of SRL with all of it."""
    try:
        with recorded_stop_requests():
            return int(parse(sys.argv[1:] if arguments is None else arguments).run())
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output is gone (`srl ps --all | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        return 0
    except Exception as error:
        return _explain(error)


def _explain(error: Exception) -> int:
    from srl.experiments.session.session import RunFailed
    from srl.storage.checkpoints import CheckpointError

    if not isinstance(error, REPORTED) and not errors.user_traceback(error):
        raise error
    sys.stdout.flush()
    print(errors.explain(error), file=sys.stderr)
    return 1 if isinstance(error, (RunFailed, CheckpointError)) else 2
