"""Compiled loops over the trees of all lanes: select an edge, expand it, back its value up.

A tree of S simulations has S+1 nodes. Node 0 is the root, and simulation s of a lane makes node s+1. An edge is an
action of a node, or an outcome of a chance node. Its child is the node that it leads to, or NONE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit

from srl.base.tree import Array

F = TypeVar("F")
# Neither nnan nor ninf: a network that returns NaN is found, and illegal logits are -inf.
FAST = {"contract", "reassoc", "arcp", "nsz", "afn"}
compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
# Counting references to arrays would take longer than the work on them, and so would copies of Nodes for calls.
NO_COUNTS: dict[str, Any] = {"_nrt": False}  # such functions cannot make arrays
bare: Callable[[F], F] = njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST, **NO_COUNTS)
inlined: Callable[[F], F] = njit(nogil=True, error_model="numpy", fastmath=FAST, forceinline=True, **NO_COUNTS)

NONE = -1
GUMBEL, PUCT = 0, 1  # kinds of searches
BY_TREE, BY_NODE, LOWEST, MEAN = 0, 1, 0, 1  # see PUCTSearch: `normalization` and `unvisited`
ILLEGAL = np.float32(-1)  # prior of an illegal action
MIN_SPAN_TREE, MIN_SPAN_NODE = np.float32(0.01), np.float32(1e-8)
TINY = np.float32(1.1754944e-38)
HIGHEST, LARGEST = np.float32(3e38), np.float32(1e30)  # LARGEST of values and rewards, so that no sum overflows
OK, NOT_FINITE, NO_LEGAL = 0, 1, 2  # what `advance` and `plant` report


class Nodes(NamedTuple):
    """The arrays of all trees. W is the larger one of the numbers of actions and of outcomes."""

    prior: Array  # [L, S+1, W] float32, probabilities; ILLEGAL for actions that must not be taken
    logit: Array  # [L, S+1, W] float32, at most 0; only Gumbel search fills it
    q: Array  # [L, S+1, W] float32, mean return of an edge, from the perspective of the node's player
    visits: Array  # [L, S+1, W] int32
    child: Array  # [L, S+1, W] int32
    total: Array  # [L, S+1] int32, 1 + visits of all edges
    parent: Array  # [L, S+1] int32
    edge: Array  # [L, S+1] int32, the edge of the parent that leads here
    reward: Array  # [L, S+1] float32, of that edge
    discount: Array  # [L, S+1] float32, of that edge; 0: the node is terminal
    value: Array  # [L, S+1] float32, of the network
    chance: Array  # [L, S+1] int32, not 0 for a chance node
    limits: Array  # [L, 2] float32, the lowest and the highest q of a tree so far
    gumbel: Array  # [L, A] float32, noise of the root
    considered: Array  # [L] int32, number of root actions that sequential halving starts with
    simulations: Array  # [L] int32, finished simulations
    scores: Array  # [A] float32, memory for the scores of one node


class Picks(NamedTuple):
    """The edges that are expanded next, one for each lane."""

    node: Array  # [L] int32
    row: Array  # [L] int64, node * L + lane: where the node's state is
    edge: Array  # [L] int64
    reached: Array  # [L] int32, the terminal node at the end of the edge, or NONE


class Rules(NamedTuple):
    """What the kind of a search looks up."""

    kind: int
    by: int
    unvisited: int
    num_actions: int
    num_outcomes: int
    num_simulations: int
    factor: Array  # [S+2] float32: PUCT's exploration by a node's total, or Gumbel's scale of q by the most visits
    halving: Array  # [considered + 1, S] int32, visits of the root actions that simulation s chooses among


@inlined
def fast_exp(x: Any) -> Any:
    """Return exp(x) of a float32 with a relative error below 1e-6; loops over it become vector instructions."""
    x = max(min(x, np.float32(88)), np.float32(-87))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)  # x - n ln 2
    p = np.float32(1 / 5040)
    for c in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0, 1.0):
        p = p * r + np.float32(c)
    return p * np.int32((np.int32(n) + 127) << 23).view(np.float32)  # p * 2**n


@inlined
def expand_node(nodes: Nodes, rules: Rules, lane: int, node: int, logits: Array, legal: Array) -> int:
    """Set the priors of a new node, and clear its edges. `legal` [0] stands for: all actions."""
    width = nodes.prior.shape[2]
    used = rules.num_outcomes if nodes.chance[lane, node] else rules.num_actions
    top = -np.float32(np.inf)
    for a in range(width):
        nodes.visits[lane, node, a] = 0
        nodes.q[lane, node, a] = 0
        nodes.child[lane, node, a] = NONE
        if a < used and (len(legal) == 0 or legal[a]):
            if not logits[a] < np.float32(np.inf):
                return NOT_FINITE
            top = max(top, logits[a])
    if top == -np.float32(np.inf):
        return NO_LEGAL
    total = np.float32(0)
    for a in range(width):
        if a < used and (len(legal) == 0 or legal[a]) and logits[a] > -np.float32(np.inf):
            p = fast_exp(logits[a] - top)
            nodes.prior[lane, node, a] = p
            total += p
        else:
            nodes.prior[lane, node, a] = ILLEGAL
        if rules.kind == GUMBEL:
            is_legal = nodes.prior[lane, node, a] >= 0
            nodes.logit[lane, node, a] = logits[a] - top if is_legal else -np.float32(np.inf)
    scale = np.float32(1) / total
    for a in range(used):
        if nodes.prior[lane, node, a] > 0:
            nodes.prior[lane, node, a] *= scale
    nodes.total[lane, node] = 1
    return OK


@inlined
def back_up(nodes: Nodes, lane: int, node: int, gain: np.float32) -> None:
    """Add the value of a node to the means of the edges that lead to it."""
    low, high = nodes.limits[lane, 0], nodes.limits[lane, 1]
    while node > 0:
        parent, edge = nodes.parent[lane, node], nodes.edge[lane, node]
        gain = nodes.reward[lane, node] + nodes.discount[lane, node] * gain
        visits = nodes.visits[lane, parent, edge] + 1
        q = nodes.q[lane, parent, edge]
        q += (gain - q) / np.float32(visits)
        nodes.visits[lane, parent, edge] = visits
        nodes.q[lane, parent, edge] = q
        nodes.total[lane, parent] += 1
        if not nodes.chance[lane, parent]:
            low, high = min(low, q), max(high, q)
        node = parent
    nodes.limits[lane, 0], nodes.limits[lane, 1] = low, high


@inlined
def best_outcome(nodes: Nodes, rules: Rules, lane: int, node: int) -> int:
    """Return the outcome whose visits are furthest below its probability."""
    best, at = np.float32(-1), 0
    for a in range(rules.num_outcomes):
        score = nodes.prior[lane, node, a] / np.float32(1 + nodes.visits[lane, node, a])
        if score > best:
            best, at = score, a
    return at


@inlined
def best_puct(nodes: Nodes, rules: Rules, lane: int, node: int) -> int:
    """Return the action with the highest upper bound, q + prior * factor / (1 + visits)."""
    num_actions, factor = rules.num_actions, rules.factor[nodes.total[lane, node]]
    value, floor = nodes.value[lane, node], MIN_SPAN_TREE
    low, high = nodes.limits[lane, 0], nodes.limits[lane, 1]
    mean, visited = value, 1
    if rules.by == BY_NODE or rules.unvisited == MEAN:
        weighted, lowest, highest = value, HIGHEST, -HIGHEST
        for a in range(num_actions):
            visits = nodes.visits[lane, node, a]
            if visits > 0:
                q = nodes.q[lane, node, a]
                mean += q
                visited += 1
                weighted += np.float32(visits) * q
                lowest, highest = min(lowest, q), max(highest, q)
        mean /= np.float32(visited)
        if rules.by == BY_NODE:
            own = weighted / np.float32(nodes.total[lane, node])
            low, high, floor = min(own, lowest), max(own, highest), MIN_SPAN_NODE
    scale = np.float32(1) / max(high - low, floor)
    missing = (mean - low) * scale if rules.unvisited == MEAN and high >= low else np.float32(0)
    best, at = -HIGHEST, NONE
    for a in range(num_actions):
        prior = nodes.prior[lane, node, a]
        if prior >= 0:
            visits = nodes.visits[lane, node, a]
            score = factor * prior / np.float32(1 + visits)
            score += (nodes.q[lane, node, a] - low) * scale if visits > 0 else missing
            if score > best:
                best, at = score, a
    return at


@inlined
def mixed_value(nodes: Nodes, rules: Rules, lane: int, node: int) -> Any:
    """Return the value that actions without visits get: the network's, mixed with the mean of the others' q."""
    mass, weighted, count = np.float32(0), np.float32(0), 0
    for a in range(rules.num_actions):
        visits = nodes.visits[lane, node, a]
        if visits > 0:
            prior = max(nodes.prior[lane, node, a], TINY)
            mass += prior
            weighted += prior * nodes.q[lane, node, a]
            count += visits
    if count == 0:
        return nodes.value[lane, node]
    return (nodes.value[lane, node] + np.float32(count) * (weighted / mass)) / np.float32(1 + count)


@inlined
def complete(nodes: Nodes, rules: Rules, lane: int, node: int, scores: Array) -> None:
    """Write logit + sigma(q) of each action. Actions without visits, also illegal ones, have the mixed value."""
    mixed = mixed_value(nodes, rules, lane, node)
    low, high, most = HIGHEST, -HIGHEST, 0
    for a in range(rules.num_actions):
        visits = nodes.visits[lane, node, a]
        q = nodes.q[lane, node, a] if visits > 0 else mixed
        scores[a] = q
        low, high, most = min(low, q), max(high, q), max(most, visits)
    scale = rules.factor[most] / max(high - low, MIN_SPAN_NODE)
    for a in range(rules.num_actions):
        scores[a] = (scores[a] - low) * scale + nodes.logit[lane, node, a]


@inlined
def best_considered(nodes: Nodes, rules: Rules, lane: int, visits: int, scores: Array) -> int:
    """Return the root action with the highest gumbel + logit + sigma(q) among those with so many visits."""
    complete(nodes, rules, lane, 0, scores)
    best, at = -HIGHEST, NONE
    for a in range(rules.num_actions):
        if nodes.visits[lane, 0, a] == visits and nodes.prior[lane, 0, a] >= 0:
            score = nodes.gumbel[lane, a] + scores[a]
            if score > best:
                best, at = score, a
    return at


@inlined
def best_improved(nodes: Nodes, rules: Rules, lane: int, node: int, scores: Array) -> int:
    """Return the action whose visits are furthest below the improved policy, softmax(logit + sigma(q))."""
    num_actions, top = rules.num_actions, -HIGHEST
    complete(nodes, rules, lane, node, scores)
    for a in range(num_actions):
        top = max(top, scores[a])
    total = np.float32(0)
    for a in range(num_actions):
        scores[a] = fast_exp(scores[a] - top)
        total += scores[a]
    inverse, share = np.float32(1) / total, np.float32(1) / np.float32(nodes.total[lane, node])
    best, at = -HIGHEST, NONE
    for a in range(num_actions):
        score = scores[a] * inverse - np.float32(nodes.visits[lane, node, a]) * share
        if score > best and nodes.prior[lane, node, a] >= 0:
            best, at = score, a
    return at


@inlined
def select_lane(nodes: Nodes, picks: Picks, rules: Rules, lane: int, scores: Array) -> None:
    """Walk from the root to an edge without a child, or to a terminal node."""
    node = 0
    while True:
        if nodes.chance[lane, node]:
            edge = best_outcome(nodes, rules, lane, node)
        elif rules.kind == PUCT:
            edge = best_puct(nodes, rules, lane, node)
        elif node == 0:
            wanted = rules.halving[nodes.considered[lane], nodes.simulations[lane]]
            edge = best_considered(nodes, rules, lane, wanted, scores)
        else:
            edge = best_improved(nodes, rules, lane, node, scores)
        child = nodes.child[lane, node, edge]
        if child == NONE or nodes.discount[lane, child] == 0:
            picks.node[lane], picks.edge[lane], picks.reached[lane] = node, edge, child
            picks.row[lane] = node * len(picks.row) + lane
            return
        node = child


@compiled
def plant(nodes: Nodes, rules: Rules, lanes: Array, value: Array, logits: Array, legal: Array) -> tuple[int, int]:
    """Start trees in these lanes; return what is wrong (or OK) and where."""
    for i in range(len(lanes)):
        lane = lanes[i]
        nodes.chance[lane, 0] = False
        if not abs(value[i]) <= LARGEST:
            return NOT_FINITE, i
        problem = expand_node(nodes, rules, lane, 0, logits[i], legal[i if len(legal) > 1 else 0])
        if problem != OK:
            return problem, i
        nodes.value[lane, 0] = value[i]
        nodes.discount[lane, 0] = 1
        nodes.parent[lane, 0] = NONE
        nodes.limits[lane, 0], nodes.limits[lane, 1] = HIGHEST, -HIGHEST
        nodes.simulations[lane] = 0
        num_legal = 0
        for a in range(rules.num_actions):
            num_legal += nodes.prior[lane, 0, a] >= 0
        if rules.kind == GUMBEL:
            nodes.considered[lane] = min(num_legal, rules.halving.shape[0] - 1)
    return OK, 0


@bare
def select(nodes: Nodes, picks: Picks, rules: Rules, lanes: Array) -> None:
    for i in range(len(lanes)):
        select_lane(nodes, picks, rules, lanes[i], nodes.scores)


@inlined
def expand_lane(
    nodes: Nodes,
    picks: Picks,
    rules: Rules,
    lane: int,
    reward: np.float32,
    discount: np.float32,
    value: np.float32,
    logits: Array,
    legal: Array,
    chance: bool,
) -> int:
    """Add the node that a lane's pick leads to, and back its value up."""
    node = nodes.simulations[lane] + 1
    if picks.reached[lane] != NONE:  # a terminal node: the same return once more
        back_up(nodes, lane, picks.reached[lane], np.float32(0))
    else:
        if not (abs(reward) <= LARGEST and abs(value) <= LARGEST and abs(discount) <= 1):
            return NOT_FINITE
        nodes.parent[lane, node], nodes.edge[lane, node] = picks.node[lane], picks.edge[lane]
        nodes.reward[lane, node], nodes.discount[lane, node] = reward, discount
        nodes.value[lane, node], nodes.chance[lane, node] = value, chance
        if discount != 0:  # a terminal node needs no legal action
            problem = expand_node(nodes, rules, lane, node, logits, legal)
            if problem != OK:
                return problem
        nodes.child[lane, picks.node[lane], picks.edge[lane]] = node
        back_up(nodes, lane, node, value if discount != 0 else np.float32(0))
    nodes.simulations[lane] = node
    return OK


@bare
def advance(
    nodes: Nodes,
    picks: Picks,
    rules: Rules,
    lanes: Array,
    reward: Array,
    discount: Array,
    value: Array,
    logits: Array,
    legal: Array,
    chance: Array,
) -> tuple[int, int]:
    """Expand the picks of these lanes, and select the next ones; return what is wrong (or OK) and where. A `discount`
    [1], `legal` [1, 0] and `chance` [1] stand for all lanes."""
    for i in range(len(lanes)):
        problem = expand_lane(
            nodes,
            picks,
            rules,
            lanes[i],
            reward[i],
            discount[i if len(discount) > 1 else 0],
            value[i],
            logits[i],
            legal[i if len(legal) > 1 else 0],
            chance[i if len(chance) > 1 else 0],
        )
        if problem != OK:
            return problem, i
        if nodes.simulations[lanes[i]] < rules.num_simulations:
            select_lane(nodes, picks, rules, lanes[i], nodes.scores)
    return OK, 0


@compiled
def summarize(nodes: Nodes, rules: Rules, lanes: Array, result: tuple[Array, ...]) -> None:
    """Write the results of these lanes: the fields of a SearchResult."""
    (actions, policy, value, visits, q), num_actions, scores = result, rules.num_actions, nodes.scores
    for i in range(len(lanes)):
        lane = lanes[i]
        mixed = mixed_value(nodes, rules, lane, 0)
        gain, most, total = nodes.value[lane, 0], 0, 0
        for a in range(num_actions):
            k = nodes.visits[lane, 0, a]
            visits[i, a] = k
            q[i, a] = nodes.q[lane, 0, a] if k > 0 else mixed
            gain += np.float32(k) * nodes.q[lane, 0, a]
            most, total = max(most, k), total + k
        value[i] = gain / np.float32(1 + total)
        if rules.kind == GUMBEL:
            actions[i] = best_considered(nodes, rules, lane, most, scores)
            policy[i] = np.exp(scores - scores.max())
            policy[i] /= policy[i].sum()
        else:
            best = -HIGHEST
            for a in range(num_actions):
                policy[i, a] = np.float32(visits[i, a]) / np.float32(total)
                if visits[i, a] == most and q[i, a] > best:
                    actions[i], best = a, q[i, a]
