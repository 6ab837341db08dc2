"""Opening a run, a checkpoint or a config file never runs the code that it names: a clear refusal each."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.gadgets import (
    FUNCTIONS,
    Gadget,
    changes_of_config,
    changes_of_facts,
    executable_formats,
    hidden_names,
    option,
    refused,
    watch_execution,
    write_sweep,
)

import srl
from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LanesConfig
from srl.api.spaces import Space
from srl.base.config import UntrustedCode
from srl.base.object_names import NAMES, load_part, part_name
from srl.callbacks.callback import Callback
from srl.cli.main import main
from srl.experiments.options.config_file import gather
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.sweeps.plan import Plan
from srl.storage.run_directory import RunDirectory
from srl.storage.signatures import sign

FIELDS = tuple(changes_of_config("", ""))
PARTS = tuple(changes_of_facts("", ""))
FILES = {
    "config.json": "eval RUN",
    "group.json": "resume RUN",
    "checkpoint/manifest.json": "export RUN",
    "checkpoint/facts.json": "export RUN",
    "checkpoint/arrays.safetensors": "export RUN",
    "status.json": "ps --all --root runs",
    "controller.json": "attach RUN",
    "metrics.jsonl": "plot RUN",
}
"""File -> a command that reads it."""
CHECKED_TEXTS = {
    *("algo", "network", "sinks", "callbacks", "graph", "env_args", "roles", "join_file", "address", "slurm_options"),
    *("replay_dir", "data", "expert", "partition", "resources", "env", "function", "name", "kwargs", "options", "game"),
    *("parameters", "url"),
}
"""Texts in files of which `named_code`, `check_named_environment` or `__post_init__` refuse some."""
PLAIN_TEXTS = {
    *("until", "recipe", "log_info", "best", "metric", "label", "variant"),  # looked up, or only compared and shown
    *("entities", "scans", "global_keys", "mask_key", "items", "policy"),  # keys of observations, names of policies
    *("dtype", "native_dtype", "device"),  # parsed by NumPy and PyTorch
    *("option", "fact", "field"),  # names of options, facts and JSON keys, compared with those that exist
    "checkpoint",  # read as a checkpoint, which refuses everything else
    "bind",  # an address of this machine
}
"""Texts in files that lead neither to an import nor to a file, a program or a connection."""
INFORMATIVE = ("status.json", "metrics.jsonl")


def test_no_field_of_a_config_runs_code(gadget: Gadget) -> None:
    """Some of these functions in each of these fields: the message names what was not imported."""
    run = RunDirectory(gadget.path)
    for number, field in enumerate(FIELDS):
        for function in FUNCTIONS[number % 3 :: 3]:
            name = gadget.name(function)
            gadget.write(changes_of_config(name, gadget.command)[field])
            with watch_execution(gadget.canary), pytest.raises(ValueError, match=r"--trust-code|must be") as refusal:
                run.load_config()
            if isinstance(refusal.value, UntrustedCode) and field != "lanes shimmy":
                assert name.partition(":")[0] in str(refusal.value)


def _holds_text(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Literal:
        return False
    return hint in (str, Path, Any, object) or any(map(_holds_text, typing.get_args(hint)))


def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}


def _classes_in(hint: Any) -> set[type]:
    inner = set().union(*map(_classes_in, typing.get_args(hint)))
    return inner | {hint} if isinstance(hint, type) and hint.__module__.startswith("srl.") else inner


def _read_from_files(kinds: Iterable[type]) -> set[type]:
    """Return the kinds that a file of a run may contain, also within others."""
    kinds = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    roots: set[Any] = {AlgorithmConfig, LanesConfig, Space, TrainOptions, Plan, Callback}
    while True:
        found = {kind for kind in kinds if issubclass(kind, tuple(roots))}
        inner = {one for kind in found for hint in _hints(kind).values() for one in _classes_in(hint)}
        if inner <= roots:
            return found
        roots |= inner


def test_every_text_in_a_file_was_reviewed() -> None:
    """A new field: find out where its text goes, extend `named_code` if needed, and add it to one of the lists."""
    kinds = {name: kind for name in NAMES.values() if isinstance(kind := load_part(name), type)}
    read = _read_from_files(kinds.values())
    assert {"game", "openspiel-game", "alphazero", "muzero", "dict-space"} <= {part_name(kind) for kind in read}
    found = {name for kind in read for name, hint in _hints(kind).items() if _holds_text(hint)}
    assert found == CHECKED_TEXTS | PLAIN_TEXTS
    for kind in kinds.values():
        if "network" in getattr(kind, "__dataclass_fields__", ()):
            algorithm: Any = object.__new__(kind)  # some refuse a network when they are built
            object.__setattr__(algorithm, "network", "os:system")
            assert algorithm.named_code() == ("os:system",)


def test_no_text_of_a_config_hides_a_name(gadget: Gadget, capsys: pytest.CaptureFixture[str]) -> None:
    """Texts that a careless check reads differently from the code that uses them."""
    gadget.write_checkpoint()
    for change in hidden_names(gadget.file).values():
        gadget.write(change)
        assert "--trust-code" in refused(gadget, capsys, "resume", str(gadget.path), "--steps", "4000")


@pytest.mark.parametrize("command", ["eval", "record"])
def test_the_title_of_an_environment_is_not_loaded(
    gadget: Gadget, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """With other options, a run's environment is built from its name."""
    gadget.write_checkpoint()
    run = str(gadget.path)
    assert main(["eval", run, "--env-arg", "sutton_barto_reward=true", "--episodes", "1"]) == 0  # the whole way works
    for title in (f"{gadget.file}:make", "srl_gadget_module:Env-v0", "ale_py:srl_gadget_module.py:make"):
        gadget.write(partial(dict.update, environment=title))
        assert "--trust-code" in refused(gadget, capsys, command, run, "--env-arg", "x=1")
    gadget.write(option("run", env_args={"xml_file": "/tmp/x.xml"}))
    assert "xml_file=/tmp/x.xml" in refused(gadget, capsys, command, run, "--env-arg", "x=1")


@pytest.mark.parametrize("command", ["eval", "resume", "record", "league", "train"])
def test_no_command_runs_code_from_a_config(gadget: Gadget, capsys: pytest.CaptureFixture[str], command: str) -> None:
    gadget.write_checkpoint()
    for field in FIELDS:
        gadget.write(changes_of_config(f"{gadget.file}:make", gadget.command)[field])
        words = ["--config", f"{gadget.path}/config.json"] if command == "train" else [str(gadget.path)]
        if command == "train" and field.startswith("lanes"):
            continue  # it reads only the options and the name of the environment
        refused(gadget, capsys, command, *words)


def _options_file(gadget: Gadget, **options: Any) -> Path:
    path = gadget.path / "options.json"
    path.write_text(json.dumps(options))
    return path


def test_no_part_of_a_checkpoint_runs_code(gadget: Gadget, capsys: pytest.CaptureFixture[str]) -> None:
    for number, part in enumerate(PARTS):
        for function in FUNCTIONS[number::5]:
            checkpoint = gadget.write_checkpoint(changes_of_facts(gadget.name(function), gadget.command)[part])
            with watch_execution(gadget.canary), pytest.raises(ValueError, match=r"--trust-code|must be"):
                srl.load(checkpoint)
        refused(gadget, capsys, "export", str(checkpoint))
        refused(gadget, capsys, "eval", str(gadget.path))


@pytest.mark.parametrize(
    "options",
    [
        {"env": "os:system", "env_args": {"command": "true"}},
        {"env": "srl_gadget_module:Env-v0"},
        {"env": "pettingzoo:srl_gadget_module"},
        {"env": "pettingzoo:os:system"},
        {"env": "game:os:system"},
        {"env": "game:srl_gadget_module:Game"},
        {"env": "game:pettingzoo:srl_gadget_module"},
        {"env": "game:pettingzoo:srl_gadget_module:make"},
        {"env": "game:openspiel:efg_game(filename=/tmp/x)"},
        {"env": "game:openspiel:efg_game", "env_args": {"filename": "/tmp/x"}},
        {"env": "game:connect-four", "env_args": {"file": "/tmp/x"}},
        {"env": "CartPole-v1", "algo": "srl_gadget_module:make"},
        {"env": "CartPole-v1", "algorithm": {"network": "srl_gadget_module:make"}},
        {"env": "CartPole-v1", "graph": "srl_gadget_module:make"},
        {"env": "CartPole-v1", "sinks": ["os:system"]},
        {"env": "CartPole-v1", "roles": ["*=policy,algo=srl_gadget_module:make"]},
        {"env": "CartPole-v1", "scheduler": "ray", "address": "198.51.100.1:6379"},
        {"env": "CartPole-v1", "scheduler": "slurm", "slurm_options": ["export=ALL,LD_PRELOAD=/tmp/x.so"]},
        {"env": "CartPole-v1", "callbacks": ["/,/../srl_gadget_module.py:make"]},
        {"env": "CartPole-v1", "callbacks": ["webhook,url=http://127.0.0.1:9/x"]},
        {"env": "CartPole-v1", "roles": ['*=policy,algo="srl_gadget_module\\u003amake"']},
        {"env": "Ant-v5", "env_args": {"xml_file": "/tmp/x.xml"}},
        {"env": "CartPole-v1", "sinks": ["wandb"]},
    ],
)
def test_an_options_file_runs_no_code(
    gadget: Gadget, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    path = _options_file(gadget, **options)
    assert "--trust-code" in refused(gadget, capsys, "train", "--config", str(path), "--steps", "64")
    with watch_execution(gadget.canary), pytest.raises(ValueError, match="--trust-code"):
        srl.train(config=path, steps=64)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("game:connect-four", {"openings": 0.5}),
        ("game:in-a-row", {"rows": 4, "columns": 4, "length": 3}),
        ("game:openspiel:breakthrough", {"rows": 6}),
        ("game:pettingzoo:classic.tictactoe_v3", {}),
    ],
)
def test_a_file_may_name_games_of_srl_and_of_known_packages(gadget: Gadget, env: str, options: dict[str, Any]) -> None:
    path = _options_file(gadget, env=env, env_args=options)
    assert gather(path, {}, "flag").environment("") == env
    with pytest.raises(UntrustedCode, match="file=/tmp/x"):
        gather(_options_file(gadget, env=env, env_args={**options, "file": "/tmp/x"}), {}, "flag").environment("")


def test_options_of_a_file_for_an_environment_of_the_command_line_name_no_files(
    gadget: Gadget, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _options_file(gadget, env_args={"xml_file": "/tmp/x.xml"})
    assert "xml_file" in refused(gadget, capsys, "train", "Ant-v5", "--config", str(path), "--steps", "64")


def test_a_role_is_decoded_once(gadget: Gadget, capsys: pytest.CaptureFixture[str]) -> None:
    """The saved form of a role must not contain settings that were part of a value."""
    hidden = f'*=policy,algo="ppo\\u002cnetwork=\\u0022{gadget.file}\\\\u003amake\\u0022"'
    path = _options_file(gadget, env="CartPole-v1", roles=[hidden])
    assert "algo cannot be" in refused(gadget, capsys, "train", "--config", str(path), "--steps", "64")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": "os:system"}, "os:system"),
        ({"seeds": ["../../victim"]}, "seeds"),
        ({"seeds": 10**12}, "seeds"),
        ({"options": {"type": "os:system", "fields": {}}}, "os:system"),
        ({"options": {"type": "ppo", "fields": {}}}, "TrainOptions"),
        ({"label": "../../victim"}, "victim"),
        ({"search": {"type": "sweep-search", "fields": {"function": "os:system", "trials": 1}}}, "os:system"),
    ],
)
def test_a_sweep_runs_no_code_and_leaves_its_directory_alone(
    gadget: Gadget, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    assert message in refused(gadget, capsys, "resume", str(write_sweep(gadget, change)))
    assert (gadget.path / "config.json").exists()


@pytest.mark.parametrize("file", FILES)
def test_no_file_of_a_run_may_be_in_a_format_that_executes(
    gadget: Gadget, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """Each command refuses the run, or does without a file that only informs."""
    checkpoint = gadget.write_checkpoint()
    target = checkpoint / file.removeprefix("checkpoint/") if "/" in file else gadget.path / file
    for content in executable_formats(gadget.canary).values():
        target.write_bytes(content)
        with watch_execution(gadget.canary):
            code = main(FILES[file].replace("RUN", str(gadget.path)).split())
        message = capsys.readouterr().err
        assert "Traceback" not in message
        assert code in ((0, 1, 2) if file in INFORMATIVE else (1, 2)), message


@pytest.mark.parametrize("file", ["config.json", "checkpoint/manifest.json", "checkpoint/arrays.safetensors"])
def test_devices_and_pipes_are_not_read(gadget: Gadget, capsys: pytest.CaptureFixture[str], file: str) -> None:
    checkpoint = gadget.write_checkpoint()
    target = checkpoint / file.removeprefix("checkpoint/") if "/" in file else gadget.path / file
    target.unlink()
    target.symlink_to("/dev/zero")
    refused(gadget, capsys, "eval", str(gadget.path))
    target.unlink()
    os.mkfifo(target)
    refused(gadget, capsys, "eval", str(gadget.path))


def test_a_module_of_the_working_directory_is_not_found_by_reading_a_run(gadget: Gadget) -> None:
    """An installed command does not search the directory in which it was started."""
    code = (
        "import sys; sys.path.remove(''); from srl.cli.main import main; main(['ps']); print('' in sys.path, sys.path)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert str(gadget.file.parent) not in shown.splitlines()[-1]


def sign_as_someone_else(gadget: Gadget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(gadget.file.parent / "other"))
    sign(gadget.path / "config.json", (gadget.path / "config.json").read_bytes())
    monkeypatch.setenv("HOME", str(gadget.file.parent / "home"))


def sign_in_another_place(gadget: Gadget, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (gadget.path / "config.json").read_bytes()
    sign(gadget.path / "config.json", content, directory=gadget.path.parent / "original")


def sign_before_a_change(gadget: Gadget, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gadget.path / "config.json"
    sign(path, path.read_bytes())
    path.write_text(path.read_text().replace("make", "main"))


@pytest.mark.parametrize("attempt", [sign_as_someone_else, sign_in_another_place, sign_before_a_change])
def test_only_the_users_own_signature_in_its_place_counts(
    gadget: Gadget,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    attempt: Callable[[Gadget, pytest.MonkeyPatch], None],
) -> None:
    gadget.write_checkpoint()
    gadget.write(changes_of_config(f"{gadget.file}:make", gadget.command)["lanes gymnasium"])
    attempt(gadget, monkeypatch)
    assert "--trust-code" in refused(gadget, capsys, "eval", str(gadget.path))


def test_the_code_of_ones_own_run_and_trusted_code_is_loaded(gadget: Gadget) -> None:
    gadget.write_checkpoint()
    gadget.write(changes_of_config(f"{gadget.file}:make", gadget.command)["lanes gymnasium"])
    with pytest.raises(ValueError, match=r"srl_gadget_module\.py:make, .* SRL uses them only if you trust"):
        srl.evaluate(gadget.path)
    assert RunDirectory(gadget.path).load_config(trust_code=True)["lanes"].name == f"{gadget.file}:make"
    sign(gadget.path / "config.json", (gadget.path / "config.json").read_bytes())
    assert RunDirectory(gadget.path).load_config()["lanes"].name == f"{gadget.file}:make"


def make_environment() -> Any:
    """An environment that the caller passes in."""


def test_code_that_the_caller_passes_in_replaces_code_of_the_same_name(gadget: Gadget) -> None:
    gadget.write(changes_of_config("/home/other/game.py:make_environment", "")["lanes gymnasium"])
    config = RunDirectory(gadget.path).load_config(trust_code=[make_environment])
    assert config["lanes"].name == f"{__name__}:make_environment"
    gadget.write(changes_of_config("/home/other/game.py:another", "")["lanes gymnasium"])
    with pytest.raises(ValueError, match=r"game\.py:another"):
        RunDirectory(gadget.path).load_config(trust_code=[make_environment])
