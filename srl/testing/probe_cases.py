"""Probes for algorithms: environments with known values and returns, each of which detects one mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MODULE = "srl.testing.probe_environments"
SIMULATORS = "srl.testing.probe_simulators"
EXPECTILE = "expectile"
DISCOUNT = 0.9
"""Discount of the probes, small enough that an algorithm learns the values within seconds."""


@dataclass(frozen=True)
class KnownValue:
    """An observation with a known value. It is the first of an episode or contains the full state, apart from what a
    policy may remember."""

    title: str
    observation: tuple[float, ...]
    rewards: tuple[float, ...]
    """Rewards from this step on, under the best actions."""
    forever: bool = False
    """Whether the last reward repeats forever."""
    after: tuple[float, ...] | None = None
    """Observation of the step before, which a policy with a memory has seen; None: the episode begins here."""

    def value(self, discount: float) -> float:
        earned = sum(reward * discount**t for t, reward in enumerate(self.rewards))
        if self.forever:
            last = len(self.rewards) - 1
            earned += self.rewards[-1] * discount**last * discount / (1.0 - discount)
        return earned


@dataclass(frozen=True)
class ProbeCase:
    name: str
    finds: str
    """Mistake that makes an algorithm fail this probe."""
    probe: str
    """Class or function in :mod:`srl.testing.probe_environments`, or in :mod:`srl.testing.probe_simulators`."""
    values: tuple[KnownValue, ...] = ()
    best: float | None = None
    """Return of an episode with the best actions."""
    at_most: float | None = None
    """Upper bound on the return of a correct algorithm, with a margin for chance."""
    needs: Literal["nothing", "memory", "mask", "state", "goals", "game", "real", "data", "simulator"] = "nothing"
    """Feature that the algorithm must have. `state`: a critic that sees more than the actor; only the critic gets the
    observation. `goals`: hindsight. `real`: Box actions. `data`: it learns only from recorded data.
    `simulator`: it searches with the rules of a game."""
    better_share: float = 0.5
    """Share of the better action in recorded data, for algorithms that learn from it."""
    discounted: bool = False
    """Whether the known values depend on the discount."""
    span: int = 1
    """Steps from an action to its reward, if the observations between them do not show it: targets must span them."""
    gradient_steps: int = 300
    """Number of gradient steps after which results are within 2 %, with a learning rate that decays from
    `learning_rate` to 0."""
    learning_rate: float = 3e-3
    env_args: Mapping[str, Any] = field(default_factory=dict)

    @property
    def environment(self) -> str:
        if self.needs == "simulator":
            return f"game:{SIMULATORS}:{self.probe}"
        return f"{'pettingzoo:' if self.needs == 'game' else ''}{MODULE}:{self.probe}"


CASES = (
    ProbeCase("constant", "a critic that does not learn", "ConstantReward", (KnownValue("value", (1.0,), (1.0,)),)),
    ProbeCase(
        "seen",
        "observations or rewards taken from the wrong step or lane",
        "SeenReward",
        (KnownValue("value at -1", (-1.0,), (-1.0,)), KnownValue("value at 1", (1.0,), (1.0,))),
    ),
    ProbeCase(
        "delayed",
        "rewards that are discounted wrongly or shifted by a step",
        "DelayedReward",
        (KnownValue("value at first", (-1.0,), (0.0, 1.0)), KnownValue("value then", (1.0,), (1.0,), after=(-1.0,))),
        discounted=True,
    ),
    ProbeCase(
        "endless",
        "truncation treated as termination: no bootstrap, or not from the final observation",
        "Endless",
        (KnownValue("value", (1.0,), (0.2,), forever=True),),
        discounted=True,
        gradient_steps=600,
        learning_rate=1e-3,
        env_args={"varies": True},
    ),
    ProbeCase(
        "ending",
        "termination treated as truncation: a bootstrap beyond the end of an episode",
        "Endless",
        (KnownValue("value", (1.0,), (0.2,)),),
        env_args={"length": 1, "terminates": True},
    ),
    ProbeCase("chosen", "a policy that does not improve, or gets worse", "ChosenReward", best=1.0),
    ProbeCase(
        "credited",
        "advantages that do not reach the action that caused the reward",
        "CreditedReward",
        best=1.0,
        span=2,
        gradient_steps=600,
    ),
    ProbeCase(
        "memory",
        "a memory that is not carried from step to step, or not trained through time",
        "Remembered",
        best=1.0,
        needs="memory",
        gradient_steps=600,
    ),
    ProbeCase(
        "leak",
        "a memory that is not reset at the end of an episode",
        "Leaking",
        at_most=0.6,
        needs="memory",
        gradient_steps=400,
    ),
    ProbeCase(
        "real",
        "a policy of real-valued actions that does not improve",
        "CreditedReward",
        best=1.0,
        needs="real",
        span=2,
        gradient_steps=600,
    ),
    ProbeCase(
        "mixed",
        "recorded data that is imitated where it should be improved on, or the reverse",
        "ChosenReward",
        best=1.0,
        needs="data",
        better_share=0.25,
        gradient_steps=600,
    ),
    ProbeCase(
        EXPECTILE,
        "values of recorded actions that are not their upper expectile",
        "ChosenReward",
        (KnownValue("value", (1.0,), (1.0,)),),
        needs="data",
        gradient_steps=900,
        learning_rate=1e-3,
    ),
    ProbeCase("masked", "actions that the mask forbids", "Masked", best=1.0, needs="mask"),
    ProbeCase(
        "state",
        "a critic that does not see the global state",
        "SeenReward",
        (KnownValue("value at -1", (-1.0,), (-1.0,)), KnownValue("value at 1", (1.0,), (1.0,))),
        needs="state",
    ),
    ProbeCase(
        "peeking", "an actor that sees observations meant for the critic", "CreditedReward", at_most=0.25, needs="state"
    ),
    ProbeCase(
        "goals",
        "hindsight with goals of other episodes, or with rewards of other goals",
        "bit_flip",
        best=-2.0,
        needs="goals",
        gradient_steps=800,
        env_args={"size": 5, "distance": 3},
    ),
    ProbeCase(
        "turns",
        "mistakes with rewards that arrive while other agents move, or with lanes that do not step together",
        "turn_bonus",
        (KnownValue("value at first", (-1.0,), (1.0, 1.0)), KnownValue("value then", (1.0,), (1.0,), after=(-1.0,))),
        best=2.0,
        needs="game",
        discounted=True,
        gradient_steps=600,
    ),
    ProbeCase(
        "planned",
        "a search that does not look ahead, or rewards of the wrong step in targets",
        "Planned",
        (KnownValue("value at first", (-1.0,), (0.0, 1.0)), KnownValue("value then", (1.0,), (1.0,))),
        best=1.0,
        needs="simulator",
        discounted=True,
    ),
    ProbeCase(
        "replied",
        "values of two players with the wrong sign",
        "Replied",
        (KnownValue("value of player 0", (-1.0,), (0.0, -1.0)), KnownValue("value of player 1", (1.0,), (1.0,))),
        best=-1.0,
        needs="simulator",
        discounted=True,
    ),
)


def choose_cases(names: tuple[str, ...]) -> tuple[ProbeCase, ...]:
    """Return the probes with these names, or all if no names are given. Raises ValueError for an unknown name."""
    known = {case.name: case for case in CASES}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown probe {name!r}; choose from {', '.join(known)}")
    return tuple(known[name] for name in names) if names else CASES
