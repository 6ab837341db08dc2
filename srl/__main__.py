"""Entry point of `srl` and `python -m srl`, which first starts the slowest part: the process that forks workers."""

from __future__ import annotations

import sys

from srl.base.process import end_at_once_on_interrupt

ELSEWHERE = ("-h", "--help", "--help-all", "--print-config", "--scheduler")
"""Options with which workers may not be forked by this process, or nothing runs at all."""


def main() -> int:
    end_at_once_on_interrupt()
    from srl.schedulers.local import zygote_launch

    words = sys.argv[1:]
    if forks_workers(words):
        zygote_launch.start_early()
    from srl.cli import main as cli

    return cli.main(words)


def forks_workers(words: list[str]) -> bool:
    """Return whether the command forks workers on this machine. A wrong guess only costs a moment."""
    if words[:1] not in (["train"], ["resume"]) and words[:2] != ["bench", "throughput"]:
        return False
    return not any(word.split("=")[0] in ELSEWHERE for word in words)


if __name__ == "__main__":
    sys.exit(main())
