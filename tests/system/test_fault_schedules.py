"""Random schedules of faults on a simulated cluster. `benchmarks/fault_schedules.py` runs many more."""

from __future__ import annotations

import pytest
from support.simulation.headless_loss import HeadlessLoss
from support.simulation.mutations import MUTATIONS, Mutation
from support.simulation.schedules import Simulation


def test_random_schedules_of_faults_break_no_invariant() -> None:
    for seed in range(1000, 1015):
        Simulation(seed).run()


@pytest.mark.parametrize(
    "seed",
    [
        503945,  # an agent that reconnected, and whose connection was reset once more, took a live controller for dead
        16619,  # the simulation took an update for durable that was made while another controller was taking over
        2000587,  # after a takeover, a trainer started elsewhere before its newest state had arrived
    ],
)
def test_schedules_that_once_broke_an_invariant_break_none(seed: int) -> None:
    Simulation(seed).run()


@pytest.mark.parametrize("seed", [10, 15, 21, 24, 37])
def test_versions_do_not_go_back_if_the_newest_state_is_lost_without_a_controller(seed: int) -> None:
    assert HeadlessLoss(seed).run() > 0


def test_a_schedule_is_repeatable() -> None:
    def trace(seed: int) -> tuple[int, list[str], list[str]]:
        simulation = Simulation(seed)
        return simulation.run(), simulation.log, [entry.digest for entry in simulation.entries]

    assert trace(7) == trace(7)


def test_a_block_that_is_used_twice_is_noticed() -> None:
    (mutation,) = [mutation for mutation in MUTATIONS if mutation.forgets == "that a block was used"]
    assert mutation.find(0, 20) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.forgets)
def test_a_fault_in_the_code_is_noticed(mutation: Mutation) -> None:
    assert mutation.find(0, 3000) is not None
