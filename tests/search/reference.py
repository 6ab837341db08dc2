"""A slow search in plain Python, one tree of objects at a time, written from the papers. It has no noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """What a model says about one action of one state."""

    state: Any
    reward: float
    discount: float
    value: float
    logits: list[float]
    legal: list[bool]
    chance: bool = False


Model = Callable[[Any, int], Outcome]


@dataclass
class Node:
    """A state. Its edges are its legal actions, or its outcomes if it is a chance node."""

    state: Any
    value: float
    logits: dict[int, float]
    reward: float = 0.0
    discount: float = 1.0
    chance: bool = False
    children: dict[int, Node] = field(default_factory=dict)
    returns: dict[int, list[float]] = field(default_factory=dict)  # of each visit of an edge
    seen: list[float] = field(default_factory=list)  # of a root: every q of an action of its tree so far

    def visits(self, edge: int) -> int:
        return len(self.returns.get(edge, ()))

    def total(self) -> int:
        return sum(map(self.visits, self.logits))

    def q(self, edge: int) -> float:
        return sum(self.returns[edge]) / len(self.returns[edge])

    def priors(self) -> dict[int, float]:
        top = max(self.logits.values())
        weights = {edge: math.exp(logit - top) for edge, logit in self.logits.items()}
        return {edge: weight / sum(weights.values()) for edge, weight in weights.items()}


def argmax(scores: dict[int, float]) -> int:
    return max(scores, key=lambda edge: (scores[edge], -edge))


@dataclass
class SlowSearch:
    kind: str  # puct or gumbel
    num_simulations: int
    normalization: str = "tree"
    unvisited: str = "lowest"
    c1: float = 1.25
    c2: float = 19652.0
    max_considered: int = 16
    value_scale: float = 0.1
    max_visit_init: float = 50.0
    num_actions: int = 0  # with illegal ones

    def run(self, root: Node, model: Model) -> Node:
        for simulation in range(self.num_simulations):
            path, node = [], root
            while True:
                edge = self.choose(root, node, simulation)
                path.append((node, edge))
                if edge not in node.children:
                    found = model(node.state, edge)
                    legal = {a: found.logits[a] for a, is_legal in enumerate(found.legal) if is_legal}
                    child = Node(found.state, found.value, legal, found.reward, found.discount, found.chance)
                    node.children[edge] = child
                    gain = child.value
                    break
                node, gain = node.children[edge], 0.0
                if node.discount == 0:
                    break
            for parent, edge in reversed(path):
                child = parent.children[edge]
                gain = child.reward + child.discount * gain
                parent.returns.setdefault(edge, []).append(gain)
                if not parent.chance:
                    root.seen.append(parent.q(edge))
        return root

    def choose(self, root: Node, node: Node, simulation: int) -> int:
        priors = node.priors()
        if node.chance:
            return argmax({edge: priors[edge] / (1 + node.visits(edge)) for edge in priors})
        if self.kind == "puct":
            total = 1 + node.total()
            factor = math.sqrt(total) * (self.c1 + math.log((total + self.c2 + 1) / self.c2))
            normalized = self.normalized_q(root, node)
            return argmax({a: normalized[a] + factor * priors[a] / (1 + node.visits(a)) for a in priors})
        improved = self.improved_logits(node)
        if node is root:
            wanted = considered_visits(min(self.max_considered, len(priors)), self.num_simulations)[simulation]
            return argmax({a: improved[a] for a in priors if node.visits(a) == wanted})
        top = max(improved.values())
        weights = {a: math.exp(score - top) for a, score in improved.items()}
        mass = sum(weights.values())
        return argmax({a: weights[a] / mass - node.visits(a) / (1 + node.total()) for a in priors})

    def normalized_q(self, root: Node, node: Node) -> dict[int, float]:
        visited = {a: node.q(a) for a in node.logits if node.visits(a)}
        if self.normalization == "tree":
            seen = root.seen or [0.0]
            low, high, floor = min(seen), max(seen), 0.01
        else:
            own = (node.value + sum(node.visits(a) * q for a, q in visited.items())) / (1 + node.total())
            seen = [own, *visited.values()]
            low, high, floor = min(seen), max(seen), 1e-8
        span = max(high - low, floor)
        mean = (node.value + sum(visited.values())) / (1 + len(visited))
        missing = (mean - low) / span if self.unvisited == "mean" and root.seen else 0.0
        return {a: (visited[a] - low) / span if a in visited else missing for a in node.logits}

    def improved_logits(self, node: Node) -> dict[int, float]:
        """Return logit + sigma(completed q) of the legal actions (Danihelka et al. 2022, section 3 and appendix D)."""
        priors, count = node.priors(), node.total()
        visited = {a: node.q(a) for a in priors if node.visits(a)}
        mixed = node.value
        if visited:
            weighted = sum(priors[a] * q for a, q in visited.items()) / sum(priors[a] for a in visited)
            mixed = (node.value + count * weighted) / (1 + count)
        completed = {a: visited.get(a, mixed) for a in priors}
        # As mctx does, illegal actions have the mixed value, too, when values are rescaled.
        seen = [*completed.values(), mixed] if len(node.logits) < self.num_actions else list(completed.values())
        low, span = min(seen), max(max(seen) - min(seen), 1e-8)
        scale = (self.max_visit_init + max(map(node.visits, priors))) * self.value_scale
        return {a: node.logits[a] + scale * (q - low) / span for a, q in completed.items()}


def considered_visits(num_considered: int, num_simulations: int) -> list[int]:
    """Return for each simulation how many visits the root action has that it chooses: sequential halving."""
    if num_considered <= 1:
        return list(range(num_simulations))
    rounds = math.ceil(math.log2(num_considered))
    order: list[int] = []
    visits, left = [0] * num_considered, num_considered
    while len(order) < num_simulations:
        for _ in range(max(1, int(num_simulations / (rounds * left)))):
            for a in range(left):
                order.append(visits[a])
                visits[a] += 1
        left = max(2, left // 2)
    return order[:num_simulations]
