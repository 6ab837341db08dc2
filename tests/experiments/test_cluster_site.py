"""Warnings about unprotected connections."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_agents import new_identity

from srl.experiments.options.keywords import make_options
from srl.experiments.session.cluster_site import ClusterSite, warnings
from srl.schedulers.engines.manual import ManualEngine


@pytest.mark.parametrize(
    ("trainers", "host", "encrypt", "private", "warned"),
    [
        (2, "127.0.0.1", False, False, False),
        (2, "127.0.0.1", True, False, True),
        (2, "10.0.0.1", False, False, True),
        (2, "10.0.0.1", False, True, False),
        (1, "10.0.0.1", True, False, False),
    ],
)
def test_users_are_warned_about_connections_of_trainers_unless_the_network_is_private(
    trainers: int, host: str, encrypt: bool, private: bool, warned: bool
) -> None:
    options = make_options(trainers=trainers, encrypt=encrypt, private_network=private)
    engine = ManualEngine(Path("agent.log"), Path("join"))
    site = ClusterSite(engine, new_identity(), Path("join"), host)
    assert ("neither authenticated nor encrypted" in " ".join(warnings(options, site))) is warned
    assert warnings(options, None) == []
    engine.warning = "Ray requires no token"
    assert ("Ray requires no token" in warnings(options, site)) is not private
