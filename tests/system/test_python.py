"""Training from Python: scripts with and without a main guard, threads, functions of a script, misspelled keywords."""

import sys
import threading
from pathlib import Path

import pytest
from support.terminals import PATIENCE, Ended, Terminal

import srl


def run_script(terminal: Terminal, text: str) -> Ended:
    path = terminal.root.parent / "script.py"
    path.write_text(text)
    return terminal.launch([sys.executable, str(path)]).end()


MAKE = """
import srl
from srl.testing.environments import Tracer

def make():
    return Tracer()
"""


def test_a_script_with_a_guard_trains_its_own_environment(terminal: Terminal) -> None:
    ended = run_script(
        terminal,
        MAKE + 'if __name__ == "__main__":\n    print(srl.train(make, steps=500, lanes=4, horizon=16).state)\n',
    )
    assert (ended.code, ended.out) == (0, "finished\n"), ended.text


def test_the_error_for_a_script_without_a_guard_says_to_add_one(terminal: Terminal) -> None:
    ended = run_script(terminal, MAKE + "srl.train(make, steps=500, lanes=4, horizon=16)\n")
    assert ended.code != 0
    assert '`if __name__ == "__main__":`' in ended.err, ended.text


def test_a_lambda_is_refused() -> None:
    with pytest.raises(ValueError, match="top level of a module"):
        srl.train(lambda: None, steps=10)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lerning_rate": 1.0}, "no option 'lerning_rate'"),
        ({"lane": 4}, "did you mean 'lanes'"),
        ({"ppo": {"gama": 0.9}}, "did you mean 'gamma'"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_a_misspelled_keyword_is_refused_with_the_nearest_name(tmp_path: Path, options: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        srl.train("CartPole-v1", root=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_training_in_a_thread_works(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(terminal.runtime))
    monkeypatch.setenv("SRL_TERMINAL", str(terminal.runtime))
    runs = []
    thread = threading.Thread(
        target=lambda: runs.append(srl.train("CartPole-v1", steps=1000, lanes=8, horizon=16, root=terminal.root))
    )
    thread.start()
    thread.join(PATIENCE)
    assert runs[0].state == "finished"


def test_ctrl_c_in_a_script_ends_its_training_and_the_script_goes_on(terminal: Terminal) -> None:
    """A script that trains an environment by name needs no guard."""
    path = terminal.root.parent / "script.py"
    path.write_text(
        'import srl\nrun = srl.train("CartPole-v1", steps=10**9, lanes=8, horizon=16)\nprint(run.state)\n'
        "policy = srl.load(run.path)\nprint(policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1))\n"
    )
    command = terminal.launch([sys.executable, str(path)])
    command.wait(lambda status: status["version"] > 3, "a few updates")
    command.signal(2)
    ended = command.end()
    assert (ended.code, ended.out) == (0, "stopped\nTrue\n"), ended.text
