"""The file with the join secret: made once, by whoever comes first."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from srl.schedulers.agent.secret import find_or_make_secret, read_secret


def test_a_secret_is_made_once_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "secret"
    made = find_or_make_secret(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert find_or_make_secret(path) == read_secret(path) == made
    assert list(path.parent.iterdir()) == [path]


def test_of_two_who_begin_at_once_both_get_the_secret_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, theirs = tmp_path / "secret", bytes(range(32))

    def meanwhile(size: int) -> bytes:
        assert not path.exists(), "others would read half a secret"
        path.write_bytes(theirs)
        path.chmod(0o600)
        return bytes(size)

    monkeypatch.setattr(secrets, "token_bytes", meanwhile)
    assert find_or_make_secret(path) == theirs
    assert list(tmp_path.iterdir()) == [path]
