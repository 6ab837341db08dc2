"""The loss of a trainer's host while there is no controller. Updates are lost, so random schedules leave it out."""

from __future__ import annotations

from srl.api.control import UpdateRecord
from srl.controller.controller import Report
from srl.schedulers.hosts.host_loss import HOLD_SECONDS
from support.simulation.schedules import (
    CHECKPOINT_SECONDS,
    FOREVER,
    RECORD_SECONDS,
    RECOVERY_LIMIT,
    REPORT_LIMIT,
    START_LIMIT,
    Simulation,
)

HEADLESS = 3.0  # virtual seconds without a controller, at whose end the host is lost


class HeadlessLoss(Simulation):
    """A run whose controller dies and whose trainer's host is then lost, until another controller has taken over."""

    def run(self) -> int:
        """Return the number of updates that were lost although actors have their parameters. It is 0 if there are too
        few hosts to try it. Raises Violation."""
        with self.cluster.in_place_of_the_system():
            try:
                self._start_controller()
                self.progress(START_LIMIT, "after the start")
                self.advance(CHECKPOINT_SECONDS + RECORD_SECONDS)
                return self._lose_trainer()
            finally:
                self._end_controller()
                self.cluster.close()

    def _lose_trainer(self) -> int:
        trainers = [process for process in self.cluster.processes() if process.commits and not process.worker_id.index]
        machine = trainers[0].machine
        others = [other for other in self.cluster.machines.values() if other is not machine]
        if len(others) < 2:
            return 0
        configs = [self.cluster.configs[each.worker_id.group] for each in trainers if each.machine is machine]
        lost = [config.committed_policy() for config in configs]
        behind = self.random.choice(others)  # a host that misses the last versions
        self.cluster.network.cut(machine.name, behind.name, FOREVER)
        self._end_controller()
        self.freeze(HEADLESS)
        machine.power_off(FOREVER)
        self.freeze(0.5)
        agents = [other.agent for other in others if other.agent is not None]
        seen = {policy: max(agent._memory.parameters[policy].version for agent in agents) for policy in lost}
        saved = {policy: self._checkpoints[policy][0] for policy in lost}
        self._durable.clear()
        self._history.clear()
        before = len(self.entries)
        self._start_controller(self._state)
        self.tick()
        self.progress(RECOVERY_LIMIT + HOLD_SECONDS + self._slowest_updates(), "after the loss of the trainer's host")
        self.advance(REPORT_LIMIT)
        for entry in self.entries[before:]:
            if not entry.rank and entry.policy in lost and saved[entry.policy] < entry.update <= seen[entry.policy]:
                self.fail(f"update {entry.update} of {entry.policy} was made again; actors have {seen[entry.policy]}")
        return sum(max(0, seen[policy] - saved[policy]) for policy in lost)

    def _record(self, report: Report) -> None:
        super()._record(report)
        if isinstance(report, UpdateRecord) and report.lag_sum < 0:
            self.fail(f"update {report.update} of {report.policy} used decisions of later versions")
