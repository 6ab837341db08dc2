"""Trees of many lanes, which are searched step by step: begin, select, expand, finish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from srl.base.tree import Array
from srl.search import kernels, mlp_kernels, noise
from srl.search.kernels import NO_LEGAL, NONE, NOT_FINITE, OK, Nodes, Picks
from srl.search.noise import Rng
from srl.search.results import Evaluation, SearchResult, Step
from srl.search.states import StateStore, aligned_zeros, as_array, state_bytes

if TYPE_CHECKING:
    from srl.search.mlp import MLPModel
    from srl.search.search import Search

ALL_LEGAL = np.zeros((1, 0), np.bool_)
NO_CHANCE = np.zeros(1, np.bool_)


def new_nodes(search: Search, num_lanes: int) -> Nodes:
    """Return the memory of trees. All numbers of a node lie together, so that a step down or up reads one or two cache
    lines: the arrays are views of records of 4-byte numbers."""
    records = aligned_zeros(num_lanes, search.num_simulations + 1, search.record_size)
    integers, width, position = records.view(np.int32), search.width, 0

    def edges(numbers: Array) -> Array:
        nonlocal position
        position += width
        return numbers[:, :, position - width : position]

    def scalar(numbers: Array) -> Array:
        nonlocal position
        position += 1
        return numbers[:, :, position - 1]

    prior, q, visits, child = edges(records), edges(records), edges(integers), edges(integers)
    return Nodes(
        prior=prior,
        logit=edges(records) if search.needs_logits else prior,
        q=q,
        visits=visits,
        child=child,
        total=scalar(integers),
        parent=scalar(integers),
        edge=scalar(integers),
        reward=scalar(records),
        discount=scalar(records),
        value=scalar(records),
        chance=scalar(integers),
        limits=np.zeros((num_lanes, 2), np.float32),
        gumbel=np.zeros((num_lanes, search.num_actions), np.float32),
        considered=np.zeros(num_lanes, np.int32),
        simulations=np.zeros(num_lanes, np.int32),
        scores=np.zeros(search.num_actions, np.float32),
    )


class Trees:
    """Search trees in lanes. Each lane counts its own simulations, so lanes may begin and finish at any time.

        trees.begin(root, rng)
        while len(trees.lanes):
            states, actions = trees.select()
            trees.expand(model(states, actions))
        result = trees.finish()

    Memory is allocated once, for the first state that `begin` is given. One thread uses the trees at a time."""

    def __init__(self, search: Search, num_lanes: int) -> None:
        if num_lanes < 1:
            raise ValueError(f"a search needs at least one lane, found num_lanes={num_lanes}")
        search.check_memory(num_lanes, 0)
        self.search = search
        self.num_lanes = num_lanes
        self._rules = search.rules
        self._states: StateStore | None = None
        self._nodes = new_nodes(search, num_lanes)

        def integers(*shape: int) -> Array:
            return np.zeros(shape, np.int32)

        self._picks = Picks(
            node=integers(num_lanes),
            row=np.zeros(num_lanes, np.int64),
            edge=np.zeros(num_lanes, np.int64),
            reached=np.full(num_lanes, NONE, np.int32),
        )
        self._all = np.arange(num_lanes)
        self._lanes = self._all[:0]
        self._finished = self._all[:0]
        self._aligned = False  # the active lanes are the first ones, and have the same number of simulations

    @property
    def lanes(self) -> Array:
        """The lanes [n] that `select` returns states for, in this order."""
        return self._lanes

    @property
    def finished(self) -> Array:
        """The lanes whose simulations are done, and which `finish` has not returned."""
        return self._finished

    def begin(
        self, root: Evaluation, rng: Rng | None = None, *, lanes: Any = None, legal: Any = None, noise: bool = True
    ) -> None:
        """Start a search in each of `lanes` [n] (default: the first n), which must not be active.

        `root` has a row for each of them, and so have `legal` [n, A] and `rng`. `rng` may be None without noise."""
        state, value, logits = root
        value = self._vector("value", value)
        num_new = len(value)
        lanes = self._all[:num_new] if lanes is None else np.asarray(lanes, np.int64)
        self._check_free(lanes, num_new)
        logits = self._matrix("logits", logits, num_new, (self.search.num_actions, self.search.width))
        legal = self._legal(legal, num_new)
        if noise and rng is None:
            raise ValueError("a search with noise needs rng: a generator or a seed for each lane; or pass noise=False")
        self._store(state)
        self._check(*kernels.plant(self._nodes, self._rules, lanes, value, logits, legal), lanes)
        if noise:
            self._add_noise(rng, lanes)
        elif self.search.needs_logits:
            self._nodes.gumbel[lanes] = 0
        self._write(state, lanes, 0, len(self._lanes) == 0)
        kernels.select(self._nodes, self._picks, self._rules, lanes)
        is_first = len(self._lanes) == 0
        self._aligned = is_first and np.array_equal(lanes, self._all[:num_new])
        self._finished = self._finished[~np.isin(self._finished, lanes)]
        self._lanes = self._all[:num_new] if self._aligned else np.sort(np.concatenate((self._lanes, lanes)))

    def select(self) -> tuple[Any, Any]:
        """Return states [n, ...] and actions [n] for the active lanes. They are valid until the next call."""
        if self._states is None or len(self._lanes) == 0:
            raise RuntimeError("no lane is active; begin a search first")
        index = slice(len(self._lanes)) if self._aligned else self._lanes
        return self._states.read(self._picks.row[index]), self._states.as_state(self._picks.edge[index])

    def expand(self, step: Step | tuple[Any, Any, Any, Any]) -> Array:
        """Add what the model returned for the selected actions; return the lanes that are finished by it."""
        lanes = self._lanes
        if self._states is None or len(lanes) == 0:
            raise RuntimeError("no lane is active; begin a search first")
        if len(step) == 4:
            state, reward, value, logits = step
            step = Step(state, reward, self.search.discount, value, logits)
        state, reward, discount, value, logits, legal, chance = step
        num_lanes = len(lanes)
        reward = self._vector("reward", reward, num_lanes)
        value = self._vector("value", value, num_lanes)
        discount = np.atleast_1d(np.asarray(as_array(discount), np.float32))
        if discount.shape != (1,):
            discount = self._vector("discount", discount, num_lanes)
        logits = self._matrix("logits", logits, num_lanes, (self.search.width,))
        legal = ALL_LEGAL if legal is None else self._legal(legal, num_lanes, self.search.width)
        chance = NO_CHANCE if chance is None else self._chance(chance, num_lanes)
        self._write(state, lanes, int(self._nodes.simulations[lanes[0]]) + 1 if self._aligned else None, self._aligned)
        self._check(
            *kernels.advance(
                self._nodes, self._picks, self._rules, lanes, reward, discount, value, logits, legal, chance
            ),
            lanes,
        )
        return self._retire(lanes)

    def run_compiled(self, model: MLPModel) -> None:
        """Run all simulations of the lanes that have just begun together, in compiled code."""
        assert self._states is not None
        assert self._aligned
        if self.search.num_actions != model.config.num_actions or self.search.num_outcomes:
            raise ValueError(
                f"the model has {model.config.num_actions} actions and no chance nodes, the search has "
                f"{self.search.num_actions} actions and {self.search.num_outcomes} outcomes"
            )
        lanes = self._lanes
        problem = mlp_kernels.search_all(
            self._nodes,
            self._picks,
            self._rules,
            lanes,
            self._states.rows,
            model.layers["dynamics"],
            model.layers["prediction"],
            model.padded_heads(),
            model.bounds,
            model.config.num_bins,
            model.bin_width,
            model.discount,
            ALL_LEGAL,
            NO_CHANCE,
            model.sampler,
            model.work(len(lanes)),
        )
        self._check(*problem, lanes)
        self._retire(lanes)

    def finish(self, lanes: Any = None) -> SearchResult:
        """Return the results of `lanes` (default: all finished ones, in ascending order), and free them."""
        lanes = np.sort(self._finished) if lanes is None else np.asarray(lanes, np.int64)
        missing = lanes[~np.isin(lanes, self._finished)]
        if len(missing):
            raise RuntimeError(f"lane {missing[0]} has not finished a search")
        shape = (len(lanes), self.search.num_actions)
        result = SearchResult(
            actions=np.zeros(len(lanes), np.int64),
            policy=np.zeros(shape, np.float32),
            value=np.zeros(len(lanes), np.float32),
            visits=np.zeros(shape, np.int32),
            q=np.zeros(shape, np.float32),
        )
        kernels.summarize(self._nodes, self._rules, lanes, tuple(result))
        self._finished = self._finished[~np.isin(self._finished, lanes)]
        return result

    def stop(self) -> None:
        """Abandon all searches."""
        self._lanes = self._finished = self._all[:0]

    def _retire(self, lanes: Array) -> Array:
        counts = self._nodes.simulations
        if self._aligned and counts[lanes[0]] < self.search.num_simulations:
            return self._all[:0]
        is_done = counts[lanes] == self.search.num_simulations
        done: Array = lanes[is_done]
        if len(done):
            self._lanes = lanes[~is_done]
            self._finished = np.concatenate((self._finished, done))
        return done

    def _store(self, state: Any) -> None:
        if self._states is None or not self._states.fits(state):
            if len(self._lanes):
                raise ValueError("the new state has another structure, shape or type than those of the active lanes")
            self.search.check_memory(self.num_lanes, state_bytes(state))
            self._states = StateStore(self.search.num_simulations + 1, self.num_lanes, state)

    def _write(self, state: Any, lanes: Array, node: int | None, in_order: bool) -> None:
        assert self._states is not None
        if in_order and node is not None and lanes.base is self._all:
            self._states.write_block(node, state)
        else:
            nodes = self._nodes.simulations[lanes].astype(np.int64) + 1 if node is None else node
            self._states.write_rows(nodes * self.num_lanes + lanes, state)

    def _add_noise(self, rng: Any, lanes: Array) -> None:
        search = self.search
        seeds = noise.draw_seeds(rng, len(lanes))
        if search.needs_logits:
            noise.fill_gumbel(seeds, lanes, search.noise_scale, self._nodes.gumbel)
        elif search.noise_scale > 0:
            priors = self._nodes.prior[:, 0, : search.num_actions]
            noise.mix_dirichlet(seeds, lanes, search.noise_alpha, search.noise_scale, priors)

    def _check_free(self, lanes: Array, num_new: int) -> None:
        if lanes.shape != (num_new,) or len(np.unique(lanes)) != num_new:
            raise ValueError(f"expected {num_new} different lanes, one for each root, found {lanes.tolist()}")
        if num_new and not (lanes.min() >= 0 and lanes.max() < self.num_lanes):
            raise ValueError(f"lanes must be from 0 to {self.num_lanes - 1}, found {lanes.tolist()}")
        busy = lanes[np.isin(lanes, self._lanes)]
        if len(busy):
            raise RuntimeError(f"lane {busy[0]} is active; it can begin a search when it has finished the last one")

    def _vector(self, name: str, numbers: Any, num_rows: int | None = None) -> Array:
        array = np.ascontiguousarray(as_array(numbers), np.float32)
        if array.ndim != 1 or num_rows not in (None, len(array)):
            raise ValueError(
                f"{name} needs one number for each of {num_rows or 'the'} lanes, found shape {array.shape}"
            )
        return array

    def _matrix(self, name: str, numbers: Any, num_rows: int, widths: tuple[int, ...]) -> Array:
        array = np.ascontiguousarray(as_array(numbers), np.float32)
        if array.ndim != 2 or len(array) != num_rows or array.shape[1] not in widths:
            raise ValueError(f"{name} must have shape ({num_rows}, {widths[0]}), found {array.shape}")
        return array

    def _legal(self, legal: Any, num_rows: int, width: int | None = None) -> Array:
        if legal is None:
            return ALL_LEGAL
        array = np.ascontiguousarray(as_array(legal), np.bool_)
        width = width or self.search.num_actions
        if array.shape not in ((num_rows, width), (num_rows, self.search.num_actions)):
            raise ValueError(f"legal must have shape ({num_rows}, {width}), found {array.shape}")
        if array.shape[1] < width:  # outcomes of chance nodes are legal
            array = np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=True)
        return array

    def _chance(self, chance: Any, num_rows: int) -> Array:
        array = np.ascontiguousarray(as_array(chance), np.bool_)
        if array.shape != (num_rows,):
            raise ValueError(f"chance must have shape ({num_rows},), found {array.shape}")
        if self.search.num_outcomes == 0 and array.any():
            raise ValueError(
                "the model returned a chance node; set num_outcomes of the search to the number of outcomes"
            )
        return array

    def _check(self, problem: int, row: int, lanes: Array) -> None:
        if problem == OK:
            return
        self.stop()
        where = f"lane {lanes[row]}"
        if problem == NO_LEGAL:
            raise ValueError(f"{where}: the mask has no legal action; end the episode (discount 0) or allow an action")
        assert problem == NOT_FINITE
        raise ValueError(
            f"{where}: the model returned a value, reward, discount or logit that is NaN, infinite or too large; "
            "values and rewards may be from -1e30 to 1e30, discounts from -1 to 1"
        )
