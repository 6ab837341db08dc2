"""Write the fixtures of test_mctx.py. It needs mctx 0.0.71, in an environment of its own.

python tests/search/make_mctx_fixtures.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

STATES, LANES, OUTCOMES = 96, 6, 3
CASES = {  # name: (kind, number of actions, number of simulations, discounts, whether there are masks)
    "puct": ("puct", 4, 40, (0.97,), False),
    "puct_masks_two_players": ("puct", 6, 50, (-1.0, -1.0, -1.0, 0.0), True),
    "puct_mixed_movers": ("puct", 3, 33, (0.9, -0.9, 0.0), False),
    "gumbel": ("gumbel", 4, 40, (0.97,), False),
    "gumbel_many_actions": ("gumbel", 24, 50, (0.97,), False),
    "gumbel_masks_two_players": ("gumbel", 6, 50, (-1.0, -1.0, -1.0, 0.0), True),
    "gumbel_mixed_movers": ("gumbel", 3, 33, (0.9, -0.9, 0.0), False),
    "gumbel_few_simulations": ("gumbel", 18, 7, (0.99,), True),
    "gumbel_noise": ("gumbel_noise", 9, 24, (0.99,), True),
    "chance": ("chance", 4, 40, (0.9,), False),
}


def tables(num_actions: int, discounts: tuple[float, ...], masks: bool, seed: int) -> dict[str, Any]:
    """Return a random model: a state is a number, and everything else is looked up."""
    rng = np.random.default_rng(seed)
    shape = (STATES, num_actions)
    legal = rng.random(shape) < 0.6 if masks else np.ones(shape, bool)
    legal[np.arange(STATES), rng.integers(num_actions, size=STATES)] = True
    return {
        "next": rng.integers(STATES, size=shape).astype(np.int32),
        "reward": rng.normal(0, 0.3, shape).astype(np.float32),
        "discount": rng.choice(discounts, shape).astype(np.float32),
        "value": rng.normal(0, 1, STATES).astype(np.float32),
        "logits": rng.normal(0, 1.5, shape).astype(np.float32),
        "legal": legal,
        # for chance nodes: the outcomes of an action, and where each outcome leads
        "after_value": rng.normal(0, 1, shape).astype(np.float32),
        "outcome_logits": rng.normal(0, 1, (*shape, OUTCOMES)).astype(np.float32),
        "outcome_next": rng.integers(STATES, size=(*shape, OUTCOMES)).astype(np.int32),
        "outcome_reward": rng.normal(0, 0.3, (*shape, OUTCOMES)).astype(np.float32),
        "root": rng.choice(STATES, LANES, replace=False).astype(np.int32),
    }


def searched(kind: str, num_simulations: int, discounts: tuple[float, ...], model: dict[str, Any]) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import mctx

    t = {name: jnp.asarray(array) for name, array in model.items()}
    masked = jnp.where(t["legal"], t["logits"], -1e9)

    def recurrent(params, key, action, state):
        after = t["next"][state, action]
        output = mctx.RecurrentFnOutput(
            reward=t["reward"][state, action],
            discount=t["discount"][state, action],
            prior_logits=masked[after],
            value=t["value"][after],
        )
        return output, after

    def decision(params, key, action, state):
        output = mctx.DecisionRecurrentFnOutput(
            chance_logits=t["outcome_logits"][state, action], afterstate_value=t["after_value"][state, action]
        )
        return output, jnp.stack((state, action), 1)

    def chance(params, key, outcome, after):
        where = (after[:, 0], after[:, 1], outcome)
        state = t["outcome_next"][where]
        output = mctx.ChanceRecurrentFnOutput(
            action_logits=masked[state],
            value=t["value"][state],
            reward=t["outcome_reward"][where],
            discount=jnp.full_like(t["value"][state], discounts[0]),
        )
        return output, state

    root = mctx.RootFnOutput(prior_logits=masked[t["root"]], value=t["value"][t["root"]], embedding=t["root"])
    common: dict[str, Any] = {"num_simulations": num_simulations}
    key = jax.random.PRNGKey(3)
    if kind == "chance":
        out = mctx.stochastic_muzero_policy(
            None, key, root, decision, chance, dirichlet_fraction=0.0, temperature=0.0, **common
        )
    else:
        common["invalid_actions"] = ~t["legal"][t["root"]]
        if kind == "puct":
            out = mctx.muzero_policy(None, key, root, recurrent, dirichlet_fraction=0.0, temperature=0.0, **common)
        else:
            scale = 1.0 if kind == "gumbel_noise" else 0.0
            out = mctx.gumbel_muzero_policy(None, key, root, recurrent, gumbel_scale=scale, **common)
    num_actions = model["logits"].shape[1]
    summary = out.search_tree.summary()
    found = {
        "visits": np.asarray(summary.visit_counts)[:, :num_actions].astype(np.int32),
        "q": np.asarray(summary.qvalues)[:, :num_actions],
        "root_value": np.asarray(summary.value),
        "policy": np.asarray(out.action_weights)[:, :num_actions],
        "actions": np.asarray(out.action).astype(np.int32),
    }
    if kind == "gumbel_noise":
        found["gumbel"] = np.asarray(out.search_tree.extra_data.root_gumbel)
    return found


def main() -> None:
    arrays: dict[str, Any] = {}
    for seed, (name, (kind, num_actions, num_simulations, discounts, masks)) in enumerate(CASES.items()):
        model = tables(num_actions, discounts, masks, seed)
        found = searched(kind, num_simulations, discounts, model)
        used = set(model) if kind == "chance" else {key for key in model if not key.startswith(("after", "outcome"))}
        arrays |= {f"{name}/model/{key}": model[key] for key in used}
        arrays |= {f"{name}/result/{key}": array for key, array in found.items()}
    np.savez_compressed(Path(__file__).parent / "fixtures" / "mctx.npz", **arrays)


if __name__ == "__main__":
    main()
