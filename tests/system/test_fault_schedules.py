"""Random schedules of faults on a simulated cluster. `benchmarks/fault_schedules.py` runs many more."""

from __future__ import annotations

import pytest
from support.simulation.schedules import Simulation

FOUND = (
    174,  # actors waited forever for a version that died with the trainer's host
    56,  # an update was in the journal, was lost with its host, and was computed again
)


@pytest.mark.parametrize("seed", FOUND)
def test_a_schedule_that_once_broke_an_invariant_holds(seed: int) -> None:
    assert Simulation(seed).run() > 2


def test_random_schedules_of_faults_break_no_invariant() -> None:
    for seed in range(1000, 1050):
        Simulation(seed).run()


def test_a_schedule_is_repeatable() -> None:
    def trace(seed: int) -> tuple[int, list[str], list[str]]:
        simulation = Simulation(seed)
        simulation.run()
        return simulation.durable, simulation.log, [entry.digest for entry in simulation.entries]

    assert trace(7) == trace(7)
