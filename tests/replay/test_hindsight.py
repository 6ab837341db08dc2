"""Hindsight: goals of later rows, rewards of all steps, as by a slow reference; frequencies; recovery."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.reference import ReferenceMemory, Source, spec_of
from replay.test_memory import chain_of, flow

from srl.api.block import BlockSpec
from srl.api.dataflow import HindsightGoals, Priorities, Replay, Sequences
from srl.base.shared_memory import KeptFile
from srl.base.tree import ArraySpec, leaves
from srl.replay.goals import GoalRewards
from srl.replay.memory import ReplayMemory
from srl.replay.storage import Arena

OWN_GOAL = -7.0  # desired by every episode; achieved goals are the numbers of observations, which are not negative
FUTURE, FINAL = HindsightGoals("future", 4.0), HindsightGoals("final", 4.0)


def difference(achieved: Any, desired: Any) -> Any:
    return (achieved - desired)[:, 0]


def reached(achieved: Any, desired: Any) -> Any:
    return (achieved == desired)[:, 0]


def at_99(achieved: Any, desired: Any) -> Any:
    return (achieved == 99.0)[:, 0]


DIFFERENCE, ENDING = GoalRewards(difference, None), GoalRewards(difference, reached)


def goal_spec(horizon: int, lanes: int) -> BlockSpec:
    goal = ArraySpec((1,), "float32")
    seen = {"observation": ArraySpec((2,), "float32"), "achieved_goal": goal, "desired_goal": goal}
    return spec_of(horizon, lanes, seen)


def with_goals(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a block whose achieved goals are the numbers of its observations."""
    seen = arrays["observation"]
    goals = {"achieved_goal": seen[..., :1], "desired_goal": np.full_like(seen[..., :1], OWN_GOAL)}
    parts = {f"observation/{name}": values for name, values in {"observation": seen, **goals}.items()}
    return {**{path: values for path, values in arrays.items() if path != "observation"}, **parts}


def memory_of(spec: BlockSpec, dataflow: Replay, rewards: GoalRewards = DIFFERENCE, **options: Any) -> ReplayMemory:
    return ReplayMemory(dataflow, spec, 0, rewards=rewards, **options)


def all_drawn(memory: ReplayMemory, num_draws: int = 80) -> set[tuple[float, float, float, float, float]]:
    """Return (observation, desired goal, reward, discount, next observation) of transitions in some draws."""
    found = set()
    for _ in range(num_draws):
        batch: Any = memory.draw(2, 0.0).batch
        here, there = batch.observation, batch.next_observation
        assert np.array_equal(here["desired_goal"], there["desired_goal"])
        assert np.array_equal(here["achieved_goal"], here["observation"][..., :1])
        columns = here["observation"][..., 0], here["desired_goal"][..., 0], batch.reward, batch.discount
        found |= set(zip(*(c.ravel().tolist() for c in (*columns, there["observation"][..., 0])), strict=True))
    return found


def goals_of(memory: ReplayMemory) -> dict[float, set[float]]:
    """Return the goals that each observation was drawn with."""
    goals: dict[float, set[float]] = {}
    for seen, goal, *_ in all_drawn(memory):
        goals.setdefault(seen, set()).add(goal)
    return goals


def filled(memory: ReplayMemory, blocks: Any, track: str = "a") -> ReplayMemory:
    for arrays, step in blocks:
        memory.insert(with_goals(arrays), track, step)
    return memory


def test_goals_are_achieved_by_later_rows_of_the_episode_also_in_the_next_blocks():
    memory = memory_of(goal_spec(2, 1), flow(100, relabel=FUTURE))
    filled(memory, chain_of([0] * 8, 2, {4: "truncated"}))  # row 5 is the last of its episode, row 6 begins the next
    goals = goals_of(memory)
    assert goals[0] == {OWN_GOAL, 1, 2, 3, 4, 5}
    assert goals[4] == {OWN_GOAL, 5}
    assert goals[6] == {OWN_GOAL, 7, 8}, "an episode that has not ended: the rows so far"
    assert 5 not in goals, "the last observation of an episode has no decision"


def test_the_final_goal_is_that_of_the_last_row():
    memory = memory_of(goal_spec(2, 1), flow(100, relabel=FINAL))
    filled(memory, chain_of([0] * 8, 2, {4: "terminated"}))
    goals = goals_of(memory)
    assert goals[0] == goals[4] == {OWN_GOAL, 5}
    assert goals[6] == goals[7] == {OWN_GOAL, 8}


def test_rewards_are_those_of_the_new_goal_and_others_are_as_recorded():
    memory = memory_of(goal_spec(4, 1), flow(100, n_step=2, relabel=FUTURE))
    filled(memory, chain_of([100] * 4, 4, {2: "truncated"}))
    by_goal = {(seen, goal): rest for seen, goal, *rest in all_drawn(memory)}
    assert by_goal[0, OWN_GOAL] == [100 + 50, 0.25, 2]
    assert by_goal[0, 2] == [(1 - 2) + 0.5 * (2 - 2), 0.25, 2]
    assert by_goal[0, 3] == [(1 - 3) + 0.5 * (2 - 3), 0.25, 2]
    assert by_goal[2, 3] == [3 - 3, 0.5, 3], "the sum ends with the episode"


def test_a_recorded_termination_holds_for_any_goal_unless_the_environment_can_say():
    kept = filled(memory_of(goal_spec(4, 1), flow(100, relabel=FUTURE)), chain_of([1] * 4, 4, {2: "terminated"}))
    assert {(seen, goal): d for seen, goal, _, d, _ in all_drawn(kept)} == {
        (0, OWN_GOAL): 0.5,
        (0, 1): 0.5,
        (0, 2): 0.5,
        (0, 3): 0.5,
        (1, OWN_GOAL): 0.5,
        (1, 2): 0.5,
        (1, 3): 0.5,
        (2, OWN_GOAL): 0.0,
        (2, 3): 0.0,
    }
    known = memory_of(goal_spec(4, 1), flow(100, n_step=3, relabel=FUTURE), ENDING)
    filled(known, chain_of([1] * 4, 4, {2: "terminated"}))
    found = {(seen, goal): (r, d) for seen, goal, r, d, _ in all_drawn(known)}
    assert found[0, 1] == (0, 0), "the new goal terminates after one step"
    assert found[0, 2] == (-1, 0)
    assert found[0, 3] == (-2 - 0.5, 0)
    assert found[0, OWN_GOAL] == (1 + 0.5 + 0.25, 0), "as recorded"


def test_a_termination_by_the_recorded_goal_bootstraps_for_another():
    memory = memory_of(goal_spec(4, 1), flow(100, relabel=FINAL), GoalRewards(difference, at_99))
    filled(memory, chain_of([1] * 4, 4, {2: "terminated"}))
    found = {(seen, goal): d for seen, goal, _, d, _ in all_drawn(memory)}
    assert (found[2, OWN_GOAL], found[2, 3]) == (0.0, 0.5)


def test_no_goal_comes_from_beyond_a_gap_or_from_other_lanes():
    blocks = list(chain_of([0] * 6, 2))
    memory = memory_of(goal_spec(2, 1), flow(100, relabel=FUTURE))
    filled(memory, [blocks[0], blocks[2]])  # steps 2 and 3 are lost, because their actor was killed
    filled(memory, [blocks[1]], "b")
    assert goals_of(memory) == {
        0: {OWN_GOAL, 1, 2},
        1: {OWN_GOAL, 2},
        2: {OWN_GOAL, 3, 4},
        3: {OWN_GOAL, 4},
        4: {OWN_GOAL, 5, 6},
        5: {OWN_GOAL, 6},
    }


def test_goals_continue_over_the_end_of_the_ring_but_not_over_its_seam():
    memory = memory_of(goal_spec(2, 1), flow(6, relabel=FUTURE))  # three slots
    filled(memory, chain_of([0] * 10, 2))  # the last block is in slot 1, the oldest one in slot 2
    goals = goals_of(memory)
    assert set(goals) == {4, 5, 6, 7, 8, 9}
    assert goals[4] == {OWN_GOAL, 5, 6, 7, 8, 9, 10}
    assert goals[9] == {OWN_GOAL, 10}


def test_no_goal_comes_from_after_a_failure_of_the_environment():
    (one, _), (two, _) = chain_of([0] * 4, 2)
    two["acting"][0], two["truncated"][0], two["first"][1] = False, True, True
    memory = filled(memory_of(goal_spec(2, 1), flow(100, relabel=FUTURE)), [(one, 0), (two, 2)])
    assert goals_of(memory) == {0: {OWN_GOAL, 1, 2}, 1: {OWN_GOAL, 2}, 3: {OWN_GOAL, 4}}


@settings(max_examples=60, deadline=None)
@given(
    horizon=st.integers(1, 7),
    lanes=st.integers(1, 3),
    n_step=st.integers(1, 5),
    num_slots=st.integers(1, 6),
    end_rate=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    fail_rate=st.sampled_from([0.0, 0.1]),
    goals=st.sampled_from([FUTURE, FINAL]),
    says_when=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_transitions_equal_those_of_a_slow_reference(
    horizon, lanes, n_step, num_slots, end_rate, fail_rate, goals, says_when, seed
):
    rng = np.random.default_rng(seed)
    rewards = ENDING if says_when else DIFFERENCE
    memory = memory_of(
        goal_spec(horizon, lanes), flow(num_slots * horizon * lanes, n_step, gamma=0.9, relabel=goals), rewards
    )
    plain = spec_of(horizon, lanes)
    reference = ReferenceMemory(plain, num_slots, n_step, 0.9)
    sources = [Source(plain, rng, 1_000_000 * (1 + i), end_rate, fail_rate) for i in range(2)]
    for _ in range(int(rng.integers(1, 14))):
        number = int(rng.integers(2))
        arrays, step = sources[number].block()
        if rng.random() < 0.8:  # otherwise the block is lost
            memory.insert(with_goals(arrays), number, step)
            reference.insert(arrays, number, step)
    if not memory.num_drawable:
        return
    recorded, later = reference.transitions(), reference.later_rows()
    for seen, goal, reward, discount, after in all_drawn(memory, 10):
        _, _, old_reward, old_discount, old_after = recorded[seen]
        assert after == old_after[0]
        if goal == OWN_GOAL:
            assert (reward, discount) == pytest.approx((old_reward, old_discount))
            continue
        assert goal in (later[seen] if goals is FUTURE else later[seen][-1:])
        total, factor = 0.0, 1.0
        for achieved in later[seen][:n_step]:
            total += factor * (achieved - goal)
            factor *= 0.9
            if says_when and achieved == goal:
                factor = 0.0
                break
        assert reward == pytest.approx(total, rel=1e-5, abs=1e-4)
        assert discount == pytest.approx(factor if says_when else old_discount)


def chi_square(counts: list[int], expected: list[float]) -> float:
    """Return by how many standard deviations the statistic exceeds its mean."""
    statistic = sum((n - e) ** 2 / e for n, e in zip(counts, expected, strict=True))
    freedom = len(counts) - 1
    return float((statistic - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_goals_are_drawn_with_the_right_frequencies(ratio):
    length, num_draws = 6, 3000
    memory = memory_of(goal_spec(4, 1), flow(100, batch=64, relabel=HindsightGoals("future", ratio)))
    filled(memory, chain_of([0] * 8, 4, {length - 1: "truncated"}))
    counts: Counter[tuple[float, float]] = Counter()
    for _ in range(num_draws):
        seen: Any = memory.draw(1, 0.0).batch.observation
        counts.update(zip(seen["observation"][0, :, 0].tolist(), seen["desired_goal"][0, :, 0].tolist(), strict=True))
    units = [*range(length), length + 1]  # one decision of the next episode is known
    cases = {(unit, OWN_GOAL): 1.0 / (1.0 + ratio) for unit in units}
    for unit in units:
        later = range(unit + 1, length + 1) if unit < length else [length + 2]
        cases |= {(unit, goal): ratio / (1.0 + ratio) / len(later) for goal in later}
    assert counts.keys() == cases.keys()
    expected = [share * 64 * num_draws / len(units) for share in cases.values()]
    assert abs(chi_square([counts[case] for case in cases], expected)) < 5.0


def test_importance_weights_of_prioritized_draws_are_exact_with_hindsight():
    dataflow = flow(100, batch=64, priorities=Priorities(alpha=1.0), relabel=FUTURE)
    memory = memory_of(goal_spec(4, 1), dataflow)
    filled(memory, chain_of([5] * 4, 4))
    rng = np.random.default_rng(0)
    total, count = 0.0, 0
    for number in range(3000):
        drawn = memory.draw(1, None)
        batch: Any = drawn.batch
        total += float((batch.reward / batch.weight / 4).sum())
        count += batch.reward.size
        if number < 4:
            memory.feedback(drawn, rng.uniform(0.5, 5.0, (1, 64)))
    later = [[(after - goal) for goal in range(after, 5)] for after in range(1, 5)]  # rewards of each unit
    expected = np.mean([0.2 * 5 + 0.8 * np.mean(rewards) for rewards in later])
    assert total / count == pytest.approx(expected, abs=0.03)


def test_a_memory_continues_exactly_after_a_kill_and_from_a_saved_state():
    spec, rng = goal_spec(3, 2), np.random.default_rng(0)
    dataflow, file = flow(24, n_step=2, relabel=FUTURE), KeptFile.create("test")
    one, killed, saved = (memory_of(spec, dataflow, arena=arena) for arena in (None, Arena(file.window(0)), None))
    source = Source(spec_of(3, 2), rng, 0, 0.2)
    for number in range(14):
        arrays, step = source.block()
        if number % 3 == 2:
            state = saved.state()
            killed, saved = memory_of(spec, dataflow, arena=Arena(file.window(0))), memory_of(spec, dataflow)
            saved.restore(state)
            assert killed.recovered
        batches = []
        for memory in (one, killed, saved):
            memory.insert(with_goals(arrays), ("actor", 0), step)
            batches.append(dict(leaves(vars(memory.draw(2, 0.5).batch))))
        for path, values in batches[0].items():
            assert np.array_equal(values, batches[1][path]), path
            assert np.array_equal(values, batches[2][path]), path
    file.close()


def test_what_cannot_be_relabeled_is_refused():
    with pytest.raises(ValueError, match=r"'achieved_goal' and 'desired_goal'.*found decision/action, observation"):
        memory_of(spec_of(2, 1), flow(8, relabel=FUTURE))
    with pytest.raises(ValueError, match="learns from sequences"):
        memory_of(goal_spec(2, 1), Replay(Sequences(2), 8, 8, relabel=FUTURE))
    with pytest.raises(ValueError, match=r"positive number, found 0\.0"):
        HindsightGoals("future", 0.0)
    with pytest.raises(ValueError, match="'future' or 'final', found 'past'"):
        HindsightGoals("past")  # type: ignore[arg-type]


def test_a_function_that_returns_a_wrong_shape_is_an_error():
    from srl.api.lanes import GoalFunctions, LanesConfig
    from srl.replay.goals import GoalRewardsConfig

    class Wrong(LanesConfig):
        def build(self, num_copies: int) -> Any:
            raise NotImplementedError

        def goal_functions(self) -> GoalFunctions:
            return GoalFunctions(lambda achieved, desired, info: achieved - desired)

    rewards = GoalRewardsConfig(Wrong()).build()
    with pytest.raises(ValueError, match=r"returned an array \(4, 1\), expected \(4,\)"):
        rewards.reward(np.zeros((4, 1)), np.zeros((4, 1)))
