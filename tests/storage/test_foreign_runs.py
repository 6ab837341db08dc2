"""A run of someone else, even one that is accepted, writes only to its directory, and cannot become a trusted one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.gadgets import Gadget, option, refused, watch_execution, write_sweep

import srl
from srl.api.scheduler import TakeoverRecord
from srl.cli.main import main
from srl.controller.takeover import ControllerState
from srl.experiments.options.keywords import make_options
from srl.experiments.session.cluster_site import site_of
from srl.experiments.session.slurm_queue import job_of, refuse_if_running, write_job
from srl.schedulers.engines.components import Component
from srl.schedulers.engines.slurm_commands import batch_script
from srl.storage.run_directory import RunDirectory
from srl.storage.signatures import is_own
from srl.transports.join_ticket import IDENTITY, Identity, JoinFile


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
