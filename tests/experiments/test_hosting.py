"""What a run over hosts tells its user before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from srl.experiments.options.keywords import make_options
from srl.experiments.session.hosting import ClusterSite, warning
from srl.schedulers.engines.manual import ManualEngine


@pytest.mark.parametrize(
    ("trainers", "host", "encrypt", "warned"),
    [
        (2, "127.0.0.1", False, False),
        (2, "127.0.0.1", True, True),
        (2, "10.0.0.1", False, True),
        (1, "10.0.0.1", True, False),
    ],
)
def test_who_is_careful_is_told_that_trainers_talk_in_the_open(
    trainers: int, host: str, encrypt: bool, warned: bool
) -> None:
    options = make_options(trainers=trainers, encrypt=encrypt)
    ground = ClusterSite(ManualEngine(Path("agent.log")), b"", host)
    assert ("neither authenticated nor encrypted" in warning(options, ground)) is warned
    assert warning(options, None) == ""
