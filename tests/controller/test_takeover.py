"""The state that a controller leaves to its successor."""

from __future__ import annotations

from srl.api.experiment import WorkerGroup
from srl.api.scheduler import OrphanWorker, TakeoverRecord
from srl.api.worker import WorkerId
from srl.controller.takeover import UNKNOWN_INCARNATIONS, ControllerState


def test_orphans_continue_and_missing_workers_get_unused_incarnations() -> None:
    state = ControllerState(TakeoverRecord("127.0.0.1:1", []), {}, {"actors/0": 1, "actors/1": 4}, 0, {}, 0.0)
    group = WorkerGroup("actors", None, 3)  # type: ignore[arg-type]
    orphan = OrphanWorker(WorkerId("actors", 0, 2), True, {})  # started after the state was written
    kept, missing = state.match([group], [orphan])
    assert kept == [(group, orphan)]
    assert [worker_id.incarnation - UNKNOWN_INCARNATIONS for _, worker_id in missing] == [4, 0]
