"""Idle actors."""

from collections.abc import Callable

import pytest
from support.rigs import ActorRig


def test_an_actor_without_admission_still_notices_that_a_policy_worker_is_gone(
    rig: Callable[..., ActorRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rig("srl.testing.environments:Tracer", max_lag=0)
    made.publish(0)
    made.play(50)  # one batch is full and not used: no more is admitted
    heard: list[bool] = []

    def poll() -> list[int]:
        heard.append(True)
        return []

    monkeypatch.setattr(made.actor._clients[0], "poll", poll)
    made.play(3)
    assert len(heard) == 3


def test_an_actor_whose_consumer_is_replaced_no_longer_waits_for_a_version_that_may_never_come(
    rig: Callable[..., ActorRig],
) -> None:
    made = rig("srl.testing.environments:Tracer", max_lag=0)
    made.publish(0)
    made.blocks(1)
    made.consumer().advance(1)  # promises version 1, which its trainer does not publish before it is lost
    made.play(5)
    assert made.actor._groups[0].waiting
    made.replace_consumer()
    made.updates["policy"] = 0
    (block,) = made.blocks(1)
    assert (block["version"] == 0).all()
