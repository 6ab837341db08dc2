"""Logs of workers go to their file, line by line, and only while the worker runs."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from srl.base.logging import logging_to


def test_lines_carry_time_level_and_worker_and_later_incarnations_append(tmp_path: Path) -> None:
    path = tmp_path / "actors-0.log"
    handlers = list(logging.getLogger().handlers)
    for incarnation in range(2):
        with logging_to(path, "actors/0"):
            logging.getLogger("srl.test").info("incarnation %d", incarnation)
            logging.getLogger("srl.test").debug("not for operators")
    logging.getLogger("srl.test").warning("after the end")
    lines = path.read_text().splitlines()
    assert [re.sub(r"^[\d-]+ [\d:.]+ ", "", line) for line in lines] == [
        "INFO    actors/0  incarnation 0",
        "INFO    actors/0  incarnation 1",
    ]
    assert logging.getLogger().handlers == handlers
