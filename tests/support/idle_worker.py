"""Workers that do nothing, for tests of schedulers."""

from __future__ import annotations

from dataclasses import dataclass

from srl.api.control import Notice
from srl.api.worker import IDLE, Context, PollResult, WorkerConfig


@dataclass(frozen=True)
class IdleConfig(WorkerConfig):
    def build(self, context: Context) -> Idle:
        return Idle()


@dataclass(frozen=True)
class VersionReporterConfig(WorkerConfig):
    """Reports the versions of the policy that it finds."""

    def build(self, context: Context) -> Idle:
        context.report(Notice(str(context.parameters("policy").versions())))
        return Idle()


class Idle:
    def poll(self) -> PollResult:
        return IDLE

    def close(self) -> None: ...
