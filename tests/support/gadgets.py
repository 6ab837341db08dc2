"""Files that try to run code when they are read: configs, checkpoints and groups of runs, and formats that execute.

Every gadget would create the file CANARY if it ran. `watch_execution` also notes what Python's audit events report.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.cli.main import main
from srl.storage import checkpoints

SAVED = Path(__file__).parents[1] / "storage" / "saved_config.json"
NUM_PARAMETERS = 9155  # of the policy in the saved config
MODULE = "srl_gadget_module"  # a module beside the run that creates the canary when it is imported
FUNCTIONS = (
    *("os:system", "os:popen", "os:execv", "posix:system", "subprocess:call", "subprocess:Popen", "pty:spawn"),
    *("builtins:exec", "builtins:eval", "builtins:__import__", "importlib:import_module", "runpy:run_path"),
    *("pickle:loads", "torch:load", "numpy:load", "ctypes:CDLL", "code:InteractiveInterpreter", "shutil:rmtree"),
    *("srl.base.object_names:load_object", "srl.cli.main:main", f"{MODULE}:make", "FILE:make"),
)
"""Functions outside of the table of parts. FILE stands for the path of a Python file beside the run."""
EVENTS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pickle.find_class",
    "ctypes.dlopen",
)

_seen: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    connects = event == "socket.connect" and isinstance(arguments[1], tuple)  # not `srl ps` to the user's own runs
    if event in EVENTS or connects or (event == "import" and MODULE in str(arguments[0])):
        _seen.append(f"{event} {arguments[:2]}")


_installed = False


@contextmanager
def watch_execution(canary: Path) -> Iterator[None]:
    """Fail if anything in the block creates the canary, starts a process, or imports a gadget."""
    global _seen, _installed
    if not _installed:
        sys.addaudithook(_audit)  # it cannot be removed
        _installed = True
    _seen, seen = [], []
    try:
        yield
    finally:
        seen, _seen = _seen, None
    assert seen == []
    assert not canary.exists()
    assert MODULE not in sys.modules


class Gadget:
    """A run directory whose files can be replaced by hostile ones."""

    def __init__(self, folder: Path) -> None:
        self.canary = folder / "CANARY"
        self.path = folder / "runs" / "victim"
        self.config: dict[str, Any] = json.loads(SAVED.read_text())
        code = f"open({str(self.canary)!r}, 'w').close()\ndef make(*a, **k):\n    open({str(self.canary)!r}, 'w')\n"
        (folder / f"{MODULE}.py").write_text(code)
        self.file = folder / f"{MODULE}.py"
        self.command = f"touch {self.canary}"
        for name in ("checkpoints", "logs", "tensorboard"):
            (self.path / name).mkdir(parents=True)
        self.write()

    def name(self, function: str) -> str:
        return function.replace("FILE", str(self.file))

    def write(self, change: Callable[[dict[str, Any]], Any] = lambda config: None) -> None:
        """Write config.json after a change, without a signature."""
        config = deepcopy(self.config)
        change(config)
        (self.path / "config.json").write_text(json.dumps(config))

    def write_run(self) -> None:
        """Replace the run by one that was trained for a moment, without its signatures."""
        shutil.rmtree(self.path)
        small: dict[str, Any] = {"scheduler": "inline", "actors": 1, "lanes": 2, "horizon": 16}
        srl.train("CartPole-v1", steps=64, **small, root=self.path.parent, name=self.path.name, sinks=[])
        for signature in self.path.rglob("*.sig"):
            signature.unlink()

    def write_checkpoint(self, change: Callable[[dict[str, Any]], Any] = lambda description: None) -> Path:
        """Write a checkpoint after a change to its facts, without a signature."""
        facts = {
            "policies": {"policy": {"version": 3, "steps": 64}},
            "description": deepcopy(self.config["policies"]),
            "graph": "",
        }
        change(facts)
        arrays = {"policy/parameters": np.zeros(NUM_PARAMETERS, np.float32)}
        path = checkpoints.write(self.path / "checkpoints", 64, arrays, facts)
        (path / "manifest.json.sig").unlink()
        return path


def refused(gadget: Gadget, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must refuse its file without running anything; return the message."""
    with watch_execution(gadget.canary):
        code = main(list(words))
    message = capsys.readouterr().err
    assert code in (1, 2), message
    assert message.startswith("srl: "), message
    assert "Traceback" not in message
    return message


def write_sweep(gadget: Gadget, change: Mapping[str, Any] | None = None, **run_options: Any) -> Path:
    group = gadget.path.parent / "sweep"
    group.mkdir()
    config = deepcopy(gadget.config)
    option("run", **run_options)(config)
    values = {"label": "", "env": "CartPole-v1", "options": config["options"], "seeds": [0], **(change or {})}
    variant = {name: values.pop(name) for name in ("label", "env", "options")}
    plan = {"variants": [{"type": "sweep-variant", "fields": variant}], **values}
    (group / "group.json").write_text(json.dumps({"plan": {"type": "sweep-plan", "fields": plan}}))
    return group


def option(section: str, **fields: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a change of options in a section of a config."""
    return lambda config: config["options"]["fields"][section]["fields"].update(fields)


def hidden_names(file: Path) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Return changes that hide the name of a function or an address in a text, or in options of an environment."""
    escaped = f"{file}\\u003amake"

    def lanes(kind: str, **fields: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda config: config.update(lanes={"type": kind, "fields": fields})

    def game(kind: str, **fields: Any) -> Callable[[dict[str, Any]], Any]:
        return lanes("game", game={"type": f"{kind}-game", "fields": fields})

    return {
        "callback after a comma": option("run", callbacks=[f"/,/..{file}:make"]),
        "callback beside the run": option("run", callbacks=[f",/../{file.name}:make"]),
        "callback that is another part": option("run", callbacks=[f"minigrid,id={MODULE}:Env-v0"]),
        "callback that connects": option("run", callbacks=["webhook,url=http://127.0.0.1:9/x"]),
        "callback with a text": option("run", callbacks=['curriculum,option=env.x,levels=["a:b"]']),
        "sink that connects": option("run", sinks=["mlflow"]),
        "escaped network of a role": option("agents", roles=[f'*=policy,network="{escaped}"']),
        "escaped algorithm of a role": option("agents", roles=[f'*=policy,algo="{escaped}"']),
        "directory": option("workers", replay_dir=str(file.parent)),
        "join file": option("cluster", join_file=str(file)),
        "mail": option("cluster", slurm_options=["mail-user=someone@example.org"]),
        "file of another option": option("run", env_args={"a": [{"b": str(file)}]}),
        "model of a MiniGrid": lanes(
            "gymnasium", name="minigrid", kwargs={"id": "Ant-v5", "xml_file": str(file)}, located=True
        ),
        "id of a MiniGrid": lanes("gymnasium", name="minigrid", kwargs={"id": "CartPole-v1"}, located=True),
        "program of EnvPool": lanes("envpool", name="D1Basic-v1", kwargs={"vzd_path": str(file)}),
        "assets of EnvPool": lanes("envpool", name="Pong-v5", kwargs={"base_path": "x"}),
        "roms of PettingZoo": lanes(
            "pettingzoo", name="pettingzoo:atari.pong_v3", kwargs={"auto_rom_install_path": str(file)}
        ),
        "roms of a game of PettingZoo": game(
            "pettingzoo", name="atari.pong_v3", kwargs={"auto_rom_install_path": str(file)}
        ),
        "file of a game of OpenSpiel": game("openspiel", name="efg_game", parameters={"filename": str(file)}),
        "file of a game in a game": game(
            "openspiel", name="repeated_game", parameters={"stage_game": {"a": str(file)}}
        ),
        "file in the name of a game": game("openspiel", name=f"efg_game(filename={file})"),
        "path": lanes("vector", name="CartPole-v1", kwargs={"a": {"type": "path", "value": str(file)}}),
    }


def changes_of_config(name: str, command: str) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Return changes that put the name of a function into each field of a config that could lead to a call."""
    code = {"type": name, "fields": {"command": command}}
    named = {"name": name, "kwargs": {"command": command, "args": command}, "located": True}

    def lanes(kind: str, **fields: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda config: config.update(lanes={"type": kind, "fields": fields})

    module = name.replace(":", ".")
    return {
        "lanes": lambda config: config.update(lanes=code),
        "lanes gymnasium": lanes("gymnasium", **named),
        "lanes vector": lanes("vector", **named),
        "lanes id": lanes("gymnasium", name=f"{name.partition(':')[0]}:Env-v0"),
        "lanes vector id": lanes("vector", name=f"{name.partition(':')[0]}:CartPole-v1"),
        "lanes function": lanes("lanes-function", name=name, kwargs={"command": command}),
        "lanes pettingzoo": lanes("pettingzoo", name=name, kwargs={"command": command}),
        "lanes pettingzoo module": lanes("pettingzoo", name=f"pettingzoo:{module}"),
        "lanes minigrid": lanes("gymnasium", name="minigrid", kwargs={"id": f"{name}-v0"}, located=True),
        "lanes inner": lanes("team-reward", inner=code, groups=[]),
        "lanes in lanes": lanes("team-reward", inner={"type": "gymnasium", "fields": named}, groups=[]),
        "lanes kwargs": lanes("vector", name="CartPole-v1", kwargs={"wrappers": code}),
        "lanes shimmy": lanes("gymnasium", name="GymV26Environment-v0", kwargs={"env_id": name}),
        "options": lambda config: config.update(options=code),
        "algo": lambda config: config["options"]["fields"].update(algo=name),
        "algorithm": lambda config: config["options"]["fields"].update(algorithm=code),
        "network": option("algorithm", network=name),
        "graph": option("run", graph=name),
        "sinks": option("run", sinks=["tensorboard", name]),
        "env_args": option("run", env_args={"make": code}),
        "role algorithm": option("agents", roles=[f"*=policy,algo={name}"]),
        "role network": option("agents", roles=[f"*=policy,network={name}"]),
        "section": lambda config: config["options"]["fields"].update(run=code),
        "space": option("algorithm", hidden_sizes=code),
    }


def changes_of_facts(name: str, command: str) -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Return changes that put the name of a function into each part of a checkpoint's description of its policies."""
    code = {"type": name, "fields": {"command": command}}

    def part(**parts: Any) -> Callable[[dict[str, Any]], Any]:
        return lambda facts: facts["description"]["policy"].update(parts)

    return {
        "algorithm": part(algorithm=code),
        "observation": part(observation=code),
        "action": part(action={"type": "dict-space", "fields": {"items": {"a": code}}}),
        "network": lambda facts: facts["description"]["policy"]["algorithm"]["fields"].update(network=name),
        "bound": part(action={"type": "box-space", "fields": {"shape": [1], "low": code}}),
    }


class _Touch:
    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self._canary}",))


def executable_formats(canary: Path) -> dict[str, bytes]:
    """Return contents in formats that run code when a careless program reads them, and some that exhaust memory."""
    pickled = pickle.dumps(_Touch(canary))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"../../../../../..{canary}", b"zip slip")
        file.writestr("archive/data.pkl", pickled)
    array = io.BytesIO()
    np.save(array, np.array([_Touch(canary)], dtype=object), allow_pickle=True)
    arrays = io.BytesIO()
    np.savez(arrays, a=np.array([_Touch(canary)], dtype=object))
    length = (2**62).to_bytes(8, "little")
    return {
        "pickle": pickled,
        "pickle protocol 0": pickle.dumps(_Touch(canary), 0),
        "torch zip": archive.getvalue(),
        "npy": array.getvalue(),
        "npz": arrays.getvalue(),
        "yaml": f"!!python/object/apply:os.system ['touch {canary}']\n".encode(),
        "toml": b'env = "os:system"\n',
        "python": f"import os; os.system('touch {canary}')\n".encode(),
        "deep list": b"[" * 200_000,
        "deep object": b'{"a":' * 100_000,
        "huge integer": b"9" * 5_000,
        "duplicate keys": b'{"files": {}, "files": {}, "options": 1, "options": 2}',
        "not text": b"\xff\xfe\x00",
        "empty": b"",
        "null": b"null",
        "safetensors length": length + b"{}",
        "safetensors shape": (48).to_bytes(8, "little")
        + b'{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}'[:48],
    }
