"""The file with the join secret."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from srl.transports.join_secret import find_or_make_secret, read_secret


def test_a_secret_is_made_once_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    made = find_or_make_secret(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_or_make_secret(path) == read_secret(path) == made
    assert list(path.parent.iterdir()) == [path]


def test_two_runs_that_start_at_once_get_the_same_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "secret", bytes(range(32))

    def make_other_meanwhile(size: int) -> bytes:
        assert not path.exists(), "others would read half a secret"
        path.write_bytes(other)
        path.chmod(0o600)
        return bytes(size)

    monkeypatch.setattr(secrets, "token_bytes", make_other_meanwhile)
    assert find_or_make_secret(path) == other
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("content", "mode", "found"), [(b"short", 0o600, "found 5;"), (bytes(32), 0o644, "mode 644")])
def test_a_file_that_is_no_secret_or_is_readable_by_others_is_refused(
    tmp_path: Path, content: bytes, mode: int, found: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(PermissionError, match=found):
        read_secret(path)
