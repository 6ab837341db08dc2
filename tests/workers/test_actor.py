"""What an actor does when it has nothing to do."""

from collections.abc import Callable

import pytest
from support.rigs import ActorRig


def test_an_actor_that_may_not_begin_a_block_still_hears_that_a_policy_worker_is_gone(
    rig: Callable[..., ActorRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rig("srl.testing.environments:tracer", max_lag=0)
    made.publish(0)
    made.play(50)  # one batch is full, and nobody learns from it: no more is admitted
    heard = []
    monkeypatch.setattr(made.actor._clients[0], "poll", lambda: heard.append(True) or [])
    made.play(3)
    assert len(heard) == 3
