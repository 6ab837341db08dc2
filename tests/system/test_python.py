"""Training from Python: scripts with and without a main guard, threads, functions of a script, misspelled keywords."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.terminals import PATIENCE, Ended, Terminal
from torch import nn

import srl
from srl.algorithms.ppo.config import PPOConfig
from srl.base import object_names
from srl.testing.environments import Tracer


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


def test_only_inline_runs_take_a_lambda() -> None:
    with pytest.raises(ValueError, match=r'a lambda has no name, so worker processes cannot .* scheduler="inline"'):
        srl.train(lambda: Tracer(), steps=10)
    with pytest.raises(ValueError, match="each run of a sweep has its own process"):
        srl.sweep(lambda: Tracer(), seeds=1, steps=10, scheduler="inline")


def test_words_of_other_libraries_work(tmp_path: Path) -> None:
    """A function as the network, one callback without a list, and a clear answer to a list of environments."""
    made: list[Any] = []

    def build(observation: Any, action: Any) -> nn.Module:
        made.append(MLP(observation.shape[0], action.n))
        return made[-1]

    class Ends(srl.Callback):
        ended = ""

        def on_end(self, report: Any) -> None:
            self.ended = report.state

    one, other = Ends(), Ends()
    small: dict[str, Any] = {"scheduler": "inline", "lanes": 2, "horizon": 8, "epochs": 1, "num_minibatches": 1}
    srl.train("CartPole-v1", steps=16, network=build, callback=one, callbacks=other, root=tmp_path, sinks=(), **small)
    assert made
    assert (one.ended, other.ended) == ("finished", "finished")
    with pytest.raises(ValueError, match="pass one class or function"):
        srl.train([Tracer], steps=16)  # type: ignore[arg-type]


class MLP(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(inputs, outputs), nn.Linear(inputs, 1)

    def forward(self, observation: Any) -> Any:
        return self.policy(observation), self.value(observation)[:, 0]


def test_an_inline_run_takes_what_a_function_defines_and_other_processes_need_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class MineConfig(PPOConfig):
        """An algorithm that only this function knows."""

    def make() -> Tracer:
        return Tracer()

    small: dict[str, Any] = {"root": tmp_path, "scheduler": "inline", "lanes": 2, "horizon": 8, "sinks": ()}
    algorithm = MineConfig(epochs=1, num_minibatches=1)
    run = srl.train(make, steps=64, algorithm=algorithm, **small)
    assert run.name.startswith("make-mine-")
    assert srl.evaluate(run.path, episodes=1).returns
    assert srl.resume(run.path, steps=128).state == "finished"
    monkeypatch.setattr(object_names, "_LOCAL", {})  # as in another process
    with pytest.raises(ValueError, match=r"MineConfig was a lambda or was defined inside a function"):
        srl.evaluate(run.path, episodes=1)
    found = srl.evaluate(run.path, episodes=1, trust_code=[make, MineConfig])
    assert found.returns
    assert srl.resume(run.path, steps=192, trust_code=[make, MineConfig]).state == "finished"
    other = srl.train(lambda: Tracer(), steps=64, ppo={"epochs": 1, "num_minibatches": 1}, **small)
    monkeypatch.setattr(object_names, "_LOCAL", {})
    with pytest.raises(ValueError, match="pass the environment"):
        srl.evaluate(other.path, episodes=1)
    assert srl.evaluate(other.path, episodes=1, env="srl.testing.environments:Tracer").returns


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
