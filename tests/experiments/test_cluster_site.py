"""The warning about unprotected connections between trainers."""

from __future__ import annotations

from pathlib import Path

import pytest

from srl.experiments.options.keywords import make_options
from srl.experiments.session.cluster_site import ClusterSite, warning
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
def test_users_who_protect_connections_are_warned_about_those_of_trainers(
    trainers: int, host: str, encrypt: bool, warned: bool
) -> None:
    options = make_options(trainers=trainers, encrypt=encrypt)
    site = ClusterSite(ManualEngine(Path("agent.log")), b"", host)
    assert ("neither authenticated nor encrypted" in warning(options, site)) is warned
    assert warning(options, None) == ""
