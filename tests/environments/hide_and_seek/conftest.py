import pytest

pytest.importorskip("mujoco")
pytest.importorskip("numba")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path, monkeypatch):
    """Run in a temporary directory, and check that MuJoCo writes no MUJOCO_LOG.TXT there."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()
