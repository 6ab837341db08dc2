import pytest

pytest.importorskip("mujoco")
pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    """No MUJOCO_LOG.TXT where one happens to be."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()
