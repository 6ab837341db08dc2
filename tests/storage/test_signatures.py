"""Runs sign their files with the user's key; `srl verify` says whether they are undamaged and who signed them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.gadgets import Gadget

from srl.cli.main import main
from srl.storage import checkpoints
from srl.storage.run_directory import RunDirectory
from srl.storage.signatures import is_own, own_key, sign


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run(tmp_path: Path, home: Path) -> RunDirectory:
    gadget = Gadget(tmp_path)
    run = RunDirectory(gadget.path)
    run.write_config(gadget.config)
    checkpoints.write(run.checkpoints, 64, {}, {})
    return run


def test_the_key_is_made_once_and_only_its_owner_may_read_it(home: Path, tmp_path: Path) -> None:
    assert own_key() == ""
    sign(tmp_path / "a", b"content")
    key = own_key()
    sign(tmp_path / "b", b"content")
    assert own_key() == key == (home / ".srl" / "signing.pub").read_text().strip()
    assert (home / ".srl" / "signing.key").stat().st_mode & 0o777 == 0o600
    (home / ".srl" / "signing.key").chmod(0o644)
    assert own_key() == ""
    assert not is_own(tmp_path / "a", b"content")


def test_a_signature_holds_for_its_content_name_and_directory(home: Path, tmp_path: Path) -> None:
    sign(tmp_path / "a", b"content")
    assert is_own(tmp_path / "a", b"content")
    assert not is_own(tmp_path / "a", b"another")
    shutil.copy(tmp_path / "a.sig", tmp_path / "b.sig")
    assert not is_own(tmp_path / "b", b"content")
    (tmp_path / "folder").mkdir()
    shutil.copy(tmp_path / "a.sig", tmp_path / "folder" / "a.sig")
    assert not is_own(tmp_path / "folder" / "a", b"content")
    record = json.loads((tmp_path / "a.sig").read_text())
    (tmp_path / "folder" / "a.sig").write_text(json.dumps({**record, "directory": str(tmp_path / "folder")}))
    assert not is_own(tmp_path / "folder" / "a", b"content")


def test_without_a_home_directory_files_stay_unsigned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    sign(tmp_path / "a", b"content")
    assert not (tmp_path / "a.sig").exists()


def test_verify_reports_the_signer(run: RunDirectory, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public = str(home / ".srl" / "signing.pub")
    assert main(["verify", str(run.path), "--key", public]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "config.json: undamaged, signed by you",
        "0001-step-64: undamaged, signed by you",
    ]
    copy = run.path.with_name("copy")
    shutil.copytree(run.path, copy)
    assert main(["verify", str(copy), "--key", public]) == 0
    assert f"signed by you in {run.path}" in capsys.readouterr().out


def test_verify_finds_changes_and_other_keys(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.pub"
    other.write_text("0" * 64 + "\n")
    assert main(["verify", str(run.path), "--key", str(other)]) == 1
    assert "2 of 2 are not signed by" in capsys.readouterr().out
    run.config.write_text(run.config.read_text() + " ")
    (run.checkpoints / "0001-step-64" / "facts.json").write_text("{ }")
    assert main(["verify", str(run.path)]) == 1
    shown = capsys.readouterr().out
    assert "config.json: changed after it was signed\n" in shown
    assert "facts.json" in shown
    other.write_text("not a key")
    assert main(["verify", str(run.path), "--key", str(other)]) == 2


def test_verify_says_what_a_change_could_not_be_noticed_in(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    run.config.with_name("config.json.sig").unlink()
    manifest = run.checkpoints / "0001-step-64" / "manifest.json"
    manifest.with_name("manifest.json.sig").unlink()
    assert main(["verify", str(run.path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "config.json: readable, not signed",  # without a signature, nothing tells its content
        "0001-step-64: undamaged, not signed",
    ]


def test_a_run_of_someone_else_that_is_written_again_is_not_signed(run: RunDirectory) -> None:
    content = run.config.read_bytes()
    run.write_config(json.loads(content), own=False)
    assert is_own(run.config, content)  # nothing has changed
    run.write_config({**json.loads(content), "environment": "another"}, own=False)
    assert not run.config.with_name("config.json.sig").exists()


def test_a_copied_checkpoint_is_signed_only_if_the_original_was(run: RunDirectory) -> None:
    source = checkpoints.checkpoints(run.checkpoints)[0]
    assert checkpoints.is_own(checkpoints.copy_as_newest(source, run.checkpoints))
    (source / "manifest.json.sig").unlink()
    assert not checkpoints.is_own(checkpoints.copy_as_newest(source, run.checkpoints))
