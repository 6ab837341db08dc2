"""Opening a run, a checkpoint or a config file never runs the code that it names: a clear refusal each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.gadgets import FUNCTIONS, Gadget, changes_of_config, changes_of_facts, executable_formats, watch_execution

import srl
from srl.base.config import UntrustedCode
from srl.cli.main import main
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
INFORMATIVE = ("status.json", "metrics.jsonl")


@pytest.fixture
def gadget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gadget:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Gadget(tmp_path)


def refused(gadget: Gadget, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must refuse its file without running anything; return the message."""
    with watch_execution(gadget.canary):
        code = main(list(words))
    message = capsys.readouterr().err
    assert code in (1, 2), message
    assert message.startswith("srl: "), message
    assert "Traceback" not in message
    return message


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
        {"env": "CartPole-v1", "algo": "srl_gadget_module:make"},
        {"env": "CartPole-v1", "algorithm": {"network": "srl_gadget_module:make"}},
        {"env": "CartPole-v1", "graph": "srl_gadget_module:make"},
        {"env": "CartPole-v1", "sinks": ["os:system"]},
        {"env": "CartPole-v1", "roles": ["*=policy,algo=srl_gadget_module:make"]},
        {"env": "CartPole-v1", "scheduler": "ray", "address": "198.51.100.1:6379"},
        {"env": "CartPole-v1", "scheduler": "slurm", "slurm_options": ["export=ALL,LD_PRELOAD=/tmp/x.so"]},
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
    group = gadget.path.parent / "sweep"
    group.mkdir()
    values = {"label": "", "env": "CartPole-v1", "options": gadget.config["options"], "seeds": [0], **change}
    variant = {name: values.pop(name) for name in ("label", "env", "options")}
    plan = {"variants": [{"type": "sweep-variant", "fields": variant}], **values}
    (group / "group.json").write_text(json.dumps({"plan": {"type": "sweep-plan", "fields": plan}}))
    assert message in refused(gadget, capsys, "resume", str(group))
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


def test_a_run_of_someone_else_cannot_write_through_links(gadget: Gadget, capsys: pytest.CaptureFixture[str]) -> None:
    gadget.write_checkpoint()
    (gadget.path / "metrics.jsonl").symlink_to(gadget.canary)
    assert "symbolic link" in refused(gadget, capsys, "resume", str(gadget.path))


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
    with pytest.raises(ValueError, match=r"srl_gadget_module\.py:make\. SRL uses them only if you trust"):
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
