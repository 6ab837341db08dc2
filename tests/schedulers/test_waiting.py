"""Workers that wait for a host which is gone. The scheduler is real, the agents are played by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_agents import SECRET, PlayedHosts, hello
from support.idle_worker import IdleConfig

from srl.api.experiment import Resources
from srl.api.scheduler import Died, HostEvent
from srl.api.worker import Place
from srl.schedulers.hosts import waiting
from srl.schedulers.hosts.fleet import Hosting
from srl.schedulers.hosts.messages import Begin
from srl.testing.contexts import until

WAITS = HostEvent("trainers/0 waits: no host that is left offers 1 GPU")


def test_who_waits_for_a_gpu_that_is_gone_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WAIT_SECONDS", 0.0)
    run = PlayedHosts(tmp_path, Hosting("run", SECRET))
    first, second = Place("trainers", 0, 0), Place("trainers", 0, 1)
    run.scheduler.start(first, IdleConfig(), Resources(gpu=1), 0)
    fast = run.join(hello("fast", gpus=1.0))
    assert run.hear(fast, Begin).place == first
    run.join(hello("slow"))
    until(lambda: run.scheduler.hosts() == ["fast", "slow"], run.poll)
    fast.close()
    until(lambda: Died(first, "its host fast is lost", blameless=True) in run.events, run.poll)
    run.scheduler.start(second, IdleConfig(), Resources(gpu=1), 0)
    until(lambda: WAITS in run.events, run.poll)
    other = run.join(hello("other", gpus=2.0))
    assert run.hear(other, Begin).place == second
    assert run.events.count(WAITS) == 1
    run.close()
