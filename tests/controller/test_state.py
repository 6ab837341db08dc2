"""What a controller leaves to its successor."""

from __future__ import annotations

from srl.api.experiment import WorkerGroup
from srl.api.scheduler import OrphanWorker, TakeoverRecord
from srl.api.worker import Place
from srl.controller.takeover import UNKNOWN_INCARNATIONS, ControllerState


def test_who_was_brought_goes_on_and_others_begin_beyond_what_may_have_been() -> None:
    state = ControllerState(TakeoverRecord("127.0.0.1:1", []), {}, {"actors/0": 1, "actors/1": 4}, 0, {}, 0.0)
    group = WorkerGroup("actors", None, 3)  # type: ignore[arg-type]
    held = OrphanWorker(Place("actors", 0, 2), True, {})  # begun after the last note
    kept, missing = state.sort_out([group], [held])
    assert kept == [(group, held)]
    assert [place.incarnation - UNKNOWN_INCARNATIONS for _, place in missing] == [4, 0]
