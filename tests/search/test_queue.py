"""Searches that join others give the same results as alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from search.models import RandomModel

from srl.search import GumbelSearch, PUCTSearch, SearchQueue, SearchResult

KINDS = {"gumbel": GumbelSearch, "puct": PUCTSearch}


class Counted:
    """A model that records the number of rows of each call."""

    def __init__(self, model: RandomModel) -> None:
        self.model, self.rows = model, [0][:0]

    def __call__(self, state: Any, action: Any) -> Any:
        self.rows.append(len(state))
        return self.model.step(state, action)


def advanced(queue: SearchQueue, model: Counted, times: int) -> dict[int, SearchResult]:
    return dict(finished for _ in range(times) for finished in queue.advance(model))


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_join_at_different_times_have_the_results_of_separate_searches(kind: str) -> None:
    model, search = RandomModel(4, (-1.0, 0.0, -1.0), masks=True, seed=3), KINDS[kind](20, 4)
    queue, counted = SearchQueue(search), Counted(model)
    found: dict[int, SearchResult] = {}
    expected: dict[int, SearchResult] = {}
    for number, (rows, steps) in enumerate([(3, 7), (5, 2), (1, 0), (4, 30), (9, 5), (2, 60)]):
        root, legal = model.root(model.roots[10 * number : 10 * number + rows])
        seeds = np.arange(rows) + 100 * number
        key = queue.begin(root, seeds.copy(), legal)
        expected[key] = search.run(root, model.step, seeds, legal)
        found |= advanced(queue, counted, steps)
    assert list(found) == list(expected)  # in the order in which they began
    for key, result in found.items():
        assert all(map(np.array_equal, result, expected[key]))
    assert len(queue) == 0


def test_a_request_joins_while_others_are_searched() -> None:
    model, search = RandomModel(2), GumbelSearch(10, 2)
    queue, counted = SearchQueue(search), Counted(model)
    for rows in (2, 2):  # both at once, so that there is memory for two
        queue.begin(model.root(model.roots[:rows])[0], noise=False)
    advanced(queue, counted, 10)
    counted.rows.clear()
    first = queue.begin(model.root(model.roots[:2])[0], noise=False)
    assert advanced(queue, counted, 4) == {}
    second = queue.begin(model.root(model.roots[2:4])[0], noise=False)
    assert list(advanced(queue, counted, 6)) == [first]
    assert list(advanced(queue, counted, 4)) == [second]
    assert counted.rows == [2] * 4 + [4] * 6 + [2] * 4
    assert queue.advance(counted) == []


def test_memory_grows_with_what_came_together_up_to_its_limit() -> None:
    model = RandomModel(2)
    search = GumbelSearch(10, 2, max_memory_mb=1)
    fitting = 2**20 // search.bytes(1, 8)
    queue, counted = SearchQueue(search), Counted(model)
    roots = [model.root(model.roots[:8])[0] for _ in range(3)]
    queue.begin(roots[0], noise=False)
    queue.advance(counted)
    queue.begin(roots[1], noise=False)
    queue.begin(roots[2], noise=False)  # no memory for these until the first has finished
    advanced(queue, counted, 9)
    assert counted.rows == [8] * 10
    counted.rows.clear()
    advanced(queue, counted, 10)
    assert counted.rows == [16] * 10
    for _ in range(200):  # more than fit
        queue.begin(roots[0], noise=False)
    counted.rows.clear()
    assert len(advanced(queue, counted, 40)) == 200
    assert max(counted.rows) == fitting // 8 * 8
    queue.begin(model.root(np.repeat(model.roots, 20))[0], noise=False)
    with pytest.raises(ValueError, match="more than max_memory_mb"):
        queue.advance(counted)
