import os
import signal
import time

import numpy as np
import pytest

from srl.base.snapshot import Snapshot


def state(value: int) -> dict[str, np.ndarray]:
    return {"weights": np.full(3_000_000, value, np.float32)}


def test_the_newest_whole_state_is_read():
    snapshot = Snapshot.create("test")
    assert snapshot.version == -1
    assert snapshot.read() is None
    for version in range(5):
        snapshot.write(version, {"weights": np.full(3, version, np.float32)}, {"steps": version})
        number, arrays, facts = snapshot.read()
        assert (snapshot.version, number, facts) == (version, version, {"steps": version})
        assert arrays["weights"].tolist() == [version] * 3
    snapshot.memory.close()


@pytest.mark.parametrize("microseconds", [200, 700, 1500, 3000, 5000, 9000])
def test_a_writer_killed_at_any_moment_leaves_a_whole_state_and_the_next_writer_goes_on(microseconds: int):
    snapshot = Snapshot.create("test")
    snapshot.write(0, state(0), {"steps": 0})
    for _ in range(5):
        begun, begin = os.pipe()
        first = snapshot.version + 1
        if (pid := os.fork()) == 0:
            states = {version: state(version) for version in range(first, first + 8)}
            os.write(begin, b"x")
            while True:
                for version, arrays in states.items():
                    snapshot.write(version, arrays, {"steps": version})
        os.read(begun, 1)
        time.sleep(microseconds * 1e-6)  # the moment is the point of the test
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(begun)
        os.close(begin)
        version, arrays, facts = snapshot.read()
        assert version == snapshot.version == facts["steps"]
        assert (arrays["weights"] == version).all()
        for following in (version + 1, version + 2, version + 3):
            snapshot.write(following, state(following), {"steps": following})
            assert snapshot.read()[0] == following
    snapshot.memory.close()
