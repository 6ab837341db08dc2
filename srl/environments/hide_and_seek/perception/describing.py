"""What agents are told, compiled: one pass over all worlds writes the rows of every agent's observation."""

from __future__ import annotations

import math

from srl.base.tree import Array
from srl.environments.hide_and_seek.perception.shapes import compiled

SELF = 10  # x y z yaw, vx vy vz wz, hider, preparation
MOVING = 9  # x y z, cos and sin of yaw, vx vy vz wz
SIZES = 3  # along x, y and z
LOCKS = 3  # by you, by your team, at all


@compiled
def describe_agents(
    num_hiders: int, q: Array, v: Array, present: Array, sees: Array, order: Array, preparation: Array,
    oneself: Array, others: Array, mask: Array,
) -> None:  # fmt: skip
    """Rows about agents, zeros for those who are absent.

    q and v [N, E, 4], present [N, E], sees [N, A, E], order [N, A, K] of who is in which row (-1: nobody),
    preparation [N] -> oneself [A, N, 10], others [A, N, K, 10], mask [A, N, K].
    """
    for n in range(len(q)):
        for a in range(len(oneself)):
            here = present[n, a]
            for i in range(4):
                oneself[a, n, i] = q[n, a, i] if here else 0.0
                oneself[a, n, 4 + i] = v[n, a, i] if here else 0.0
            oneself[a, n, 8] = 1.0 if here and a < num_hiders else 0.0
            oneself[a, n, 9] = preparation[n] if here else 0.0
        for a in range(len(oneself)):
            for row in range(others.shape[2]):
                other = order[n, a, row]
                mask[a, n, row] = other >= 0 and sees[n, a, other]
                for i in range(SELF):
                    others[a, n, row, i] = oneself[other, n, i] if other >= 0 else 0.0


@compiled
def describe_objects(
    first: int, number: int, num_hiders: int, sized: bool, locks: int, q: Array, v: Array, half: Array, present: Array,
    sees: Array, locked: Array, owner: Array, rows: Array, mask: Array,
) -> None:  # fmt: skip
    """Rows about the `number` entities from `first` on, zeros for those who are absent.

    Arrays as above; half [N, E, 3]; locked and owner [N, O] of all objects -> rows [A, N, K, width], mask [A, N, K].
    Sizes are told if they are `sized`; `locks` is the column of their locks, 0 if they have none.
    """
    num_agents = len(rows)
    for n in range(len(q)):
        for k in range(number):
            e = first + k
            here = present[n, e]
            cosine, sine = (math.cos(q[n, e, 3]), math.sin(q[n, e, 3])) if here else (0.0, 0.0)
            for a in range(num_agents):
                for i in range(3):
                    rows[a, n, k, i] = q[n, e, i]
                rows[a, n, k, 3], rows[a, n, k, 4] = cosine, sine
                for i in range(4):
                    rows[a, n, k, 5 + i] = v[n, e, i]
                mask[a, n, k] = sees[n, a, e]
                if sized:
                    for i in range(SIZES):
                        rows[a, n, k, MOVING + i] = 2.0 * half[n, e, i]
                if locks:
                    fast, by = locked[n, e - num_agents], owner[n, e - num_agents]
                    rows[a, n, k, locks] = fast and by == a
                    rows[a, n, k, locks + 1] = fast and (by < num_hiders) == (a < num_hiders)
                    rows[a, n, k, locks + 2] = fast
