"""Searches equal slow ones in plain Python, and have none of the bugs that public implementations had."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from search.models import RandomModel, same, slow_visits
from search.reference import SlowSearch

from srl.search import Evaluation, GumbelSearch, PUCTSearch, Search, Step, sample_actions

KINDS = {
    "gumbel": lambda simulations, actions, **more: GumbelSearch(simulations, actions, **more),
    "puct": lambda simulations, actions, **more: PUCTSearch(simulations, actions, **more),
}
WORLDS: dict[str, dict[str, Any]] = {
    "one player": {"discounts": (0.95,)},
    "ends": {"discounts": (0.95, 0.95, 0.0)},
    "masks": {"discounts": (0.9,), "masks": True},
    "two players": {"discounts": (-1.0, -1.0, -1.0, 0.0), "masks": True},
    "turns of any length": {"discounts": (0.97, -0.97, 0.0), "masks": True},
    "chance": {"discounts": (0.95, -0.95, 0.0), "masks": True, "num_outcomes": 3},
    "more outcomes than actions": {"discounts": (0.95,), "num_outcomes": 7},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", WORLDS)
def test_visits_and_values_equal_those_of_a_slow_search(world: str, kind: str) -> None:
    for seed, (num_actions, num_simulations) in enumerate([(2, 25), (5, 60), (9, 16)]):
        model = RandomModel(num_actions, seed=seed, **WORLDS[world])
        states = model.roots[:12]
        root, legal = model.root(states)
        search = KINDS[kind](num_simulations, num_actions, num_outcomes=model.num_outcomes)
        result = search.run(root, model.step, legal=legal, noise=False)
        visits, values = slow_visits(model, SlowSearch(kind, num_simulations), states)
        assert np.array_equal(result.visits, visits)
        assert result.value == pytest.approx(values, abs=1e-4)
        assert np.all(legal[np.arange(len(states)), result.actions])


@pytest.mark.parametrize("normalization", ["tree", "node"])
@pytest.mark.parametrize("unvisited", ["lowest", "mean"])
def test_each_way_to_normalize_equals_that_of_a_slow_search(normalization: Any, unvisited: Any) -> None:
    model = RandomModel(4, (-1.0, 0.0, -1.0), masks=True, seed=5)
    root, legal = model.root(model.roots[:10])
    search = PUCTSearch(40, 4, normalization=normalization, unvisited=unvisited)
    result = search.run(root, model.step, legal=legal, noise=False)
    slow = SlowSearch("puct", 40, normalization, unvisited)
    assert np.array_equal(result.visits, slow_visits(model, slow, model.roots[:10])[0])


@pytest.mark.parametrize("kind", KINDS)
def test_values_alternate_in_sign_at_every_ply(kind: str) -> None:
    """A corridor with one action: the player who makes move 5 wins. From ply t the mover wins if 5 - t is even."""
    last = 5

    def step(state: Any, action: Any) -> Step:
        ended = state == last
        zeros = np.zeros(len(state), np.float32)
        return Step(state + 1, ended * 1.0, np.where(ended, 0.0, -1.0), zeros, np.zeros((len(state), 1)))

    plies = np.arange(last + 1)
    root = Evaluation(plies, np.zeros(last + 1), np.zeros((last + 1, 1)))
    result = KINDS[kind](200, 1).run(root, step, noise=False)
    won = np.where((last - plies) % 2 == 0, 1.0, -1.0)
    assert np.array_equal(np.sign(result.value), won)
    # Beyond the first (last - ply) simulations, which end at values of 0, every simulation returns the result.
    assert result.q[:, 0] == pytest.approx(won * (200 - (last - plies)) / 200, abs=1e-5)
    assert result.value == pytest.approx(won * (200 - (last - plies)) / 201, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first_mover_moves_twice", [True, False])
def test_the_opponents_reply_counts_against_the_mover(kind: str, first_mover_moves_twice: bool) -> None:
    """Action 0 wins 0.5 at once. Action 1 leads to a choice between 1 and -1, of the same player or of the other."""
    discount = 1.0 if first_mover_moves_twice else -1.0

    def step(state: Any, action: Any) -> Step:
        at_root = state == 0
        reward = np.where(at_root, np.where(action == 0, 0.5, 0.0), np.where(action == 0, 1.0, -1.0))
        goes_on = at_root & (action == 1)
        return Step(
            state + 1, reward, np.where(goes_on, discount, 0.0), np.zeros(len(state)), np.zeros((len(state), 2))
        )

    root = Evaluation(np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 2)))
    result = KINDS[kind](100, 2).run(root, step, noise=False)
    assert result.actions[0] == (1 if first_mover_moves_twice else 0)
    assert result.policy[0].argmax() == result.actions[0]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_values_do_not_disturb_the_prior(kind: str) -> None:
    """All values are the same number: min = max, and only the logits count."""
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))

    def step(state: Any, action: Any) -> Step:
        rows = len(state)
        return Step(state, np.zeros(rows), 1.0, np.full(rows, 7.0), np.repeat(logits, rows, 0))

    result = KINDS[kind](30, 3).run(Evaluation(np.zeros(1), np.full(1, 7.0), logits), step, noise=False)
    assert result.actions[0] == 1
    assert np.argsort(result.policy[0]).tolist() == [0, 2, 1]
    if kind == "gumbel":
        assert result.policy[0] == pytest.approx([0.1, 0.6, 0.3], abs=1e-5)
    assert result.value[0] == pytest.approx(7.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_simulations", [1, 2, 7, 50])
def test_illegal_actions_have_no_visits_and_no_policy(kind: str, num_simulations: int) -> None:
    rng = np.random.default_rng(1)
    legal = rng.random((64, 18)) < 0.3
    legal[np.arange(64), rng.integers(18, size=64)] = True
    model = RandomModel(18, (-1.0, 0.0), masks=True, seed=2)
    seen: list[tuple[Any, Any]] = []

    def step(state: Any, action: Any) -> Step:
        seen.append((state.copy(), action.copy()))
        return model.step(state, action)

    states = model.roots[:64]
    root = model.root(states)[0]
    result = KINDS[kind](num_simulations, 18).run(root, step, np.arange(64), legal=legal)
    assert not result.visits[~legal].any()
    assert not result.policy[~legal].any()
    assert np.all(legal[np.arange(64), result.actions])
    assert np.all(result.visits.sum(1) == num_simulations)
    assert result.policy.sum(1) == pytest.approx(np.ones(64), abs=1e-5)
    inside = (
        [(s, a) for s, a in zip(*map(np.concatenate, zip(*seen[1:], strict=True)), strict=True)] if seen[1:] else []
    )
    roots = set(states.tolist())
    assert all(model.legal[s, a] for s, a in inside if s not in roots)


@pytest.mark.parametrize("kind", KINDS)
def test_an_illegal_action_with_a_huge_logit_is_never_taken(kind: str) -> None:
    model = RandomModel(4, seed=1)
    root, legal = model.root(model.roots[:3])
    root.logits[:, 2] = 1e30
    legal[:, 2] = False
    result = KINDS[kind](20, 4).run(root, model.step, np.arange(3), legal=legal)
    assert not result.visits[:, 2].any()
    assert np.isfinite(result.policy).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_is_the_same_alone_and_among_others(kind: str) -> None:
    model = RandomModel(6, (-1.0, 0.0, -1.0), masks=True, seed=3)
    states = model.roots[:33]

    def run(lanes: list[int], search: Search) -> Any:
        root, legal = model.root(states[lanes])
        return search.run(root, model.step, np.array(lanes) + 100, legal=legal)

    together = run(list(range(33)), KINDS[kind](30, 6))
    shared = KINDS[kind](30, 6)
    for lanes in ([7], [32, 0, 5], list(range(16, 33))):
        for search in (KINDS[kind](30, 6), shared):  # also in the memory of an earlier search
            part = run(lanes, search)
            assert all(np.array_equal(whole[lanes], own) for whole, own in zip(together, part, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_one_lane_does_not_change_another(kind: str) -> None:
    """A lane with values of millions stands beside others: their normalization and their parents are their own."""
    small, large = RandomModel(3, seed=4), RandomModel(3, seed=4, value_scale=1e6)
    states = small.roots[:4]

    def step(state: Any, action: Any) -> Step:
        here, there = small.step(state[:, 0], action), large.step(state[:, 0], action)
        big = state[:, 1] == 1
        picked = [
            np.where(big if one.ndim == 1 else big[:, None], two, one)
            for one, two in zip(here[1:5], there[1:5], strict=True)
        ]
        reward, discount, value, logits = picked
        return Step(np.stack((here.state, state[:, 1]), 1), reward, discount, value, logits, here.legal)

    def run(flags: list[int]) -> Any:
        value = np.where(np.array(flags) == 1, large.value[states], small.value[states])
        root = Evaluation(np.stack((states, flags), 1), value, small.logits[states])
        return KINDS[kind](40, 3).run(root, step, np.arange(4))

    alone, beside = run([0, 0, 0, 0]), run([0, 1, 0, 1])
    for field in range(len(alone)):
        assert np.array_equal(alone[field][[0, 2]], beside[field][[0, 2]])


@pytest.mark.parametrize("kind", KINDS)
def test_searches_that_begin_at_different_times_equal_those_that_begin_together(kind: str) -> None:
    model = RandomModel(5, (0.9, -0.9, 0.0), masks=True, seed=6)
    states = model.roots[:9]
    together = KINDS[kind](12, 5)
    root, legal = model.root(states)
    expected = together.run(root, model.step, np.arange(9), legal=legal)
    trees = KINDS[kind](12, 5).build(9)
    order = [4, 0, 8, 2, 6, 1, 7, 3, 5]
    waiting, found = list(order), {}
    for turn in itertools.count():
        if waiting and turn % 3 == 0:
            lane = waiting.pop(0)
            one, mask = model.root(states[[lane]])
            trees.begin(one, np.array([lane]), lanes=[lane], legal=mask)
        done = trees.expand(model.step(*trees.select())) if len(trees.lanes) else np.zeros(0, int)
        assert sorted(done.tolist()) == trees.finished.tolist()
        finished = trees.finished.tolist()
        for row, lane in enumerate(finished):
            result = trees.finish([lane])
            found[lane] = [array[0] for array in result]
            assert row >= 0
        if len(found) == 9:
            break
    for lane in range(9):
        assert all(np.array_equal(whole[lane], own) for whole, own in zip(expected, found[lane], strict=True))


def test_noise_is_fresh_in_every_search_and_follows_the_seeds() -> None:
    model = RandomModel(8, seed=7)
    root = model.root(model.roots[:20])[0]
    for search in (GumbelSearch(6, 8), PUCTSearch(6, 8)):
        seeds, again = np.arange(20), np.arange(20)
        first, second = search.run(root, model.step, seeds), search.run(root, model.step, seeds)
        assert not np.array_equal(first.visits, second.visits)
        assert same(search.run(root, model.step, again), first)
        assert same(search.run(root, model.step, again), second)
        quiet = [search.run(root, model.step, noise=False) for _ in range(2)]
        assert same(*quiet)


def test_noise_of_the_root_does_not_enter_the_gumbel_policy() -> None:
    """The target is softmax(logits + sigma(q)), without the Gumbel noise that chose what to visit."""
    logits = np.log(np.array([[0.2, 0.5, 0.3]], np.float32)).repeat(50, 0)

    def step(state: Any, action: Any) -> Step:
        return Step(state, np.zeros(50), 0.0, np.zeros(50), logits)

    result = GumbelSearch(9, 3).run(Evaluation(np.zeros(50), np.zeros(50), logits), step, np.arange(50))
    assert len(np.unique(result.actions)) == 3
    assert np.allclose(result.policy, [0.2, 0.5, 0.3], atol=1e-5)


def test_dirichlet_noise_is_mixed_into_the_priors_of_legal_actions_only() -> None:
    search = PUCTSearch(1, 5, dirichlet_alpha=0.3, dirichlet_fraction=0.25)
    trees = search.build(400)
    legal = np.tile(np.array([True, False, True, True, False]), (400, 1))
    root = Evaluation(np.zeros(400), np.zeros(400), np.zeros((400, 5)))
    trees.begin(root, np.arange(400), legal=legal)
    priors = trees._nodes.prior[:, 0]
    assert np.all(priors[:, [1, 4]] < 0)
    noise = (priors[:, [0, 2, 3]] - 0.75 / 3) / 0.25
    assert noise.sum(1) == pytest.approx(np.ones(400), abs=1e-4)
    # Dirichlet(0.3, 0.3, 0.3): mean 1/3, variance (1/3)(2/3) / (0.9 + 1)
    assert noise.mean(0) == pytest.approx([1 / 3] * 3, abs=0.06)
    assert noise.var(0) == pytest.approx([2 / 9 / 1.9] * 3, abs=0.03)


@pytest.mark.parametrize("num_actions", [1, 2, 3, 17, 40])
@pytest.mark.parametrize("num_simulations", [1, 2, 5, 33])
def test_gumbel_search_stays_inside_its_table_for_any_number_of_actions(num_actions: int, num_simulations: int) -> None:
    """LightZero #493: an index outside of the table of considered visits."""
    model = RandomModel(num_actions, (0.9, 0.0), masks=num_actions > 1, seed=num_actions)
    states = model.roots[:24]
    root, legal = model.root(states)
    for _ in range(3):
        result = GumbelSearch(num_simulations, num_actions).run(root, model.step, np.arange(24), legal=legal)
        assert np.all(result.visits.sum(1) == num_simulations)
        considered = np.minimum(16, legal.sum(1))
        assert np.all((result.visits > 0).sum(1) == np.minimum(considered, num_simulations))


def test_tensors_and_nested_states_give_the_same_trees_as_arrays() -> None:
    model = RandomModel(4, (0.9, 0.0), seed=9)
    states = model.roots[:7]
    root = model.root(states)[0]
    expected = GumbelSearch(20, 4).run(root, model.step, np.arange(7))

    def step(state: Any, action: Any) -> Step:
        found = model.step(state["at"].numpy(), action.numpy())
        tensors = [torch.from_numpy(np.asarray(array)) for array in found[1:5]]
        return Step({"at": torch.from_numpy(found.state), "more": (state["more"][0] + 1,)}, *tensors)

    nested = {"at": torch.from_numpy(states), "more": (torch.zeros(7, 2),)}
    tensors = Evaluation(nested, torch.from_numpy(root.value), torch.from_numpy(root.logits))
    with torch.inference_mode():
        assert same(GumbelSearch(20, 4).run(tensors, step, np.arange(7)), expected)


def test_bad_input_is_refused_with_what_to_do() -> None:
    model = RandomModel(3, seed=1)
    with pytest.raises(ValueError, match="num_simulations >= 1, found 0"):
        GumbelSearch(0, 4)
    with pytest.raises(ValueError, match="num_actions >= 1"):
        PUCTSearch(5, 0)
    with pytest.raises(ValueError, match=r"needs 16\d\d MB, more than max_memory_mb=1000.*Sampled MuZero"):
        PUCTSearch(50, 32_000, max_memory_mb=1000).build(64)
    with pytest.raises(ValueError, match=r"states of 4000000 bytes needs \d+ MB"):
        GumbelSearch(50, 4, max_memory_mb=500).run(
            Evaluation(np.zeros((8, 1_000_000), np.float32), np.zeros(8), np.zeros((8, 4))),
            model.step,
            noise=False,
        )
    root, legal = model.root(model.roots[:4])
    legal[2] = False
    with pytest.raises(ValueError, match="lane 2: the mask has no legal action"):
        GumbelSearch(5, 3).run(root, model.step, legal=legal, noise=False)
    with pytest.raises(ValueError, match="lane 0: the mask has no legal action"):
        GumbelSearch(5, 3).run(root, lambda s, a: model.step(s, a)._replace(legal=np.zeros((4, 3))), noise=False)
    with pytest.raises(ValueError, match="needs rng"):
        GumbelSearch(5, 3).run(root, model.step)
    with pytest.raises(ValueError, match="set num_outcomes"):
        GumbelSearch(5, 3).run(root, lambda s, a: model.step(s, a)._replace(chance=np.ones(4, bool)), noise=False)


@pytest.mark.parametrize(
    "change",
    [
        {"value": np.array([0, np.nan, 0, 0])},
        {"reward": np.array([0, np.inf, 0, 0])},
        {"reward": np.array([0, 2e38, 0, 0])},
        {"discount": np.array([1, 1.5, 1, 1])},
        {"logits": np.array([[0, 0, 0], [0, np.nan, 0], [0, 0, 0], [0, 0, 0]])},
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_not_finite_are_errors_and_not_corrupt_trees(kind: str, change: dict[str, Any]) -> None:
    model = RandomModel(3, seed=1)
    root = model.root(model.roots[:4])[0]
    search = KINDS[kind](5, 3)
    with pytest.raises(ValueError, match="lane 1: the model returned a value, reward, discount or logit"):
        search.run(root, lambda s, a: model.step(s, a)._replace(**change), np.arange(4))
    assert np.all(search.run(root, model.step, np.arange(4)).visits.sum(1) == 5)


def test_actions_are_drawn_in_proportion_to_weights_with_a_temperature() -> None:
    weights = np.tile([1.0, 0.0, 3.0], (4000, 1))
    drawn = sample_actions(weights, 1.0, np.random.default_rng(0))
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx([0.25, 0.0, 0.75], abs=0.03)
    drawn = sample_actions(weights, 0.5, np.random.default_rng(0))  # weights 1 and 9
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx([0.1, 0.0, 0.9], abs=0.03)
    assert np.all(sample_actions(weights, 0.0, None) == 2)
