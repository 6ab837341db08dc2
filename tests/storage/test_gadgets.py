"""Opening a run, a checkpoint or a config file never runs the code that it names: a clear refusal each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.gadgets import (
    FUNCTIONS,
    Gadget,
    changes_of_config,
    changes_of_facts,
    executable_formats,
    hidden_names,
    option,
    watch_execution,
)

import srl
from srl.api.scheduler import TakeoverRecord
from srl.base.config import UntrustedCode
from srl.cli.main import main
from srl.controller.takeover import ControllerState
from srl.experiments.options.keywords import make_options
from srl.experiments.session.cluster_site import site_of
from srl.experiments.session.slurm_queue import job_of, refuse_if_running, write_job
from srl.schedulers.engines.components import Component
from srl.schedulers.engines.slurm_commands import batch_script
from srl.storage.run_directory import RunDirectory
from srl.storage.signatures import is_own, sign
from srl.transports.join_ticket import IDENTITY, Identity, JoinFile

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
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))  # `srl ps` connects to the user's own runs
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
    """Other options for the environment of a run make it anew from its name."""
    gadget.write_checkpoint()
    run = str(gadget.path)
    assert main(["eval", run, "--env-arg", "sutton_barto_reward=true", "--episodes", "1"]) == 0  # the whole way works
    for title in (f"{gadget.file}:make", "srl_gadget_module:Env-v0", "ale_py:srl_gadget_module.py:make"):
        gadget.write(lambda config, title=title: config.update(environment=title))
        assert "--trust-code" in refused(gadget, capsys, command, run, "--env-arg", "x=1")
    gadget.write(option("run", env_args={"xml_file": "/tmp/x.xml"}))
    assert "xml_file=/tmp/x.xml" in refused(gadget, capsys, command, run, "--env-arg", "x=1")


def test_a_run_of_someone_else_is_not_signed_when_it_is_resumed(gadget: Gadget) -> None:
    """Otherwise whatever the check does not know would be trusted from then on."""
    gadget.write_run()
    config, checkpoints = gadget.path / "config.json", gadget.path / "checkpoints"
    srl.resume(gadget.path, steps=128)
    assert not is_own(config, config.read_bytes())
    assert not any(checkpoints.glob("*/manifest.json.sig"))
    srl.resume(gadget.path, steps=192, trust_code=True)
    assert is_own(config, config.read_bytes())
    assert any(checkpoints.glob("*/manifest.json.sig"))
    srl.resume(gadget.path, steps=256)
    assert is_own(config, config.read_bytes())


def test_a_run_of_someone_else_cannot_bring_the_identity_of_its_controller(
    gadget: Gadget, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = gadget.path / IDENTITY
    known = Identity.create(identity).fingerprint
    site = site_of(make_options(scheduler="hosts"), (), gadget.path / "logs")
    assert site is not None
    assert site.identity.fingerprint != known
    state = ControllerState(TakeoverRecord("127.0.0.1:0", []), {}, {}, 0, {}, 0.0)
    (gadget.path / "controller.json").write_bytes(msgspec.json.encode(state))
    assert "agents of a run that you did not start" in refused(gadget, capsys, "attach", str(gadget.path))


def test_a_join_file_replaces_only_a_join_file(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("text")
    precious.chmod(0o600)
    identity = Identity.create(tmp_path / IDENTITY)
    with pytest.raises(FileExistsError, match="is not a join file"):
        JoinFile(precious, identity, "run", "127.0.0.1:1")
    assert precious.read_text() == "text"
    JoinFile(tmp_path / "join", identity, "run", "127.0.0.1:1")
    JoinFile(tmp_path / "join", identity, "run", "127.0.0.1:2").remove()
    assert not (tmp_path / "join").exists()


def test_a_run_of_someone_else_cannot_choose_a_job_or_an_address(
    gadget: Gadget, capsys: pytest.CaptureFixture[str]
) -> None:
    """`srl ps`, `srl stop` and `srl resume` neither connect to an address in its directory nor cancel the job there."""
    cluster = gadget.path / "cluster"
    cluster.mkdir()
    JoinFile(cluster / "join", Identity.create(cluster / IDENTITY), "victim", "127.0.0.1:9")
    (cluster / "address").write_text("tls://127.0.0.1:9")
    (cluster / "job").write_text("77")
    with watch_execution(gadget.canary):
        assert main(["ps", "--root", str(gadget.path.parent)]) == 0
        assert main(["stop", "victim", "--root", str(gadget.path.parent)]) != 0
        refuse_if_running(RunDirectory(gadget.path))
    assert job_of(cluster) == ""
    write_job(cluster, "77")
    assert job_of(cluster) == "77"


@pytest.mark.parametrize("command", ["eval", "resume", "record", "league", "train"])
def test_no_command_runs_code_from_a_config(gadget: Gadget, capsys: pytest.CaptureFixture[str], command: str) -> None:
    gadget.write_checkpoint()
    for field in FIELDS:
        gadget.write(changes_of_config(f"{gadget.file}:make", gadget.command)[field])
        words = ["--config", f"{gadget.path}/config.json"] if command == "train" else [str(gadget.path)]
        if command == "train" and field.startswith("lanes"):
            continue  # it reads only the options and the name of the environment
        refused(gadget, capsys, command, *words)


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
    "options",
    [
        {"slurm_options": ["time=10 --export=LD_PRELOAD=/tmp/x.so"]},
        {"slurm_options": ["time=10\t--wrap=true"]},
        {"slurm_options": ["time=10\n#SBATCH --export=ALL"]},
        {"resources": ["actors=node:x --export=LD_PRELOAD=/tmp/x.so"]},
        {"partition": "debug --export=ALL"},
    ],
)
def test_no_value_adds_an_option_to_a_batch_script(gadget: Gadget, options: dict[str, Any]) -> None:
    gadget.write(option("cluster", **options))
    with pytest.raises(ValueError, match="blanks or control characters"):
        RunDirectory(gadget.path).load_config(trust_code=True)
    for word in ("x --export=ALL", "x\t--export=ALL", "x\u00a0y"):
        with pytest.raises(ValueError, match="blank or control character"):
            batch_script("run", [Component(1, 1, constraint=word)], Path("/log"), ["true"], "", ())
        with pytest.raises(ValueError, match="blank or control character"):
            batch_script(word, [Component(1, 1)], Path("/log"), ["true"], "", ())


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


def test_a_run_of_someone_else_cannot_write_through_links(gadget: Gadget, capsys: pytest.CaptureFixture[str]) -> None:
    gadget.write_checkpoint()
    (gadget.path / "metrics.jsonl").symlink_to(gadget.canary)
    assert "symbolic link" in refused(gadget, capsys, "resume", str(gadget.path))
    (gadget.path / "metrics.jsonl").unlink()
    os.mkfifo(gadget.path / "metrics.jsonl")
    assert "pipe" in refused(gadget, capsys, "resume", str(gadget.path))


def test_a_sweep_of_someone_else_cannot_write_through_links(gadget: Gadget, capsys: pytest.CaptureFixture[str]) -> None:
    group = write_sweep(gadget)
    (group / "sweep-0.log").symlink_to(gadget.canary)
    assert "symbolic link" in refused(gadget, capsys, "resume", str(group))


def test_the_runs_of_a_sweep_of_someone_else_are_not_signed(gadget: Gadget, capsys: pytest.CaptureFixture[str]) -> None:
    group = write_sweep(gadget, steps=64)
    assert main(["resume", str(group)]) == 0, capsys.readouterr().err
    assert not list(group.rglob("*.sig"))


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
