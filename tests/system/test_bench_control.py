"""`srl bench control`: a real controller with simulated agents."""

import json

from support.terminals import Terminal


def test_simulated_workers_register_and_report(terminal: Terminal) -> None:
    ended = terminal.run("bench", "control", "--workers", "300", "--hosts", "7", "--seconds", "0.5", "--json")
    assert ended.code == 0, ended.text
    result = json.loads(ended.out)
    assert (result["workers"], result["hosts"], result["restarts"]) == (300, 7, 0)
    assert result["registered_seconds"] > 0
    empty = terminal.call("bench", "control", "--workers", "0")
    assert empty.code == 2
    assert "at least one worker" in empty.err
