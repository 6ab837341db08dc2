"""The probes by which an algorithm is checked: environments with known answers, and what a wrong one gives away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from srl.base.errors import nearest

PLACE = "srl.testing.probe_environments"
DISCOUNT = 0.9
"""Of the probes: values spread fast enough to be learned in seconds."""


@dataclass(frozen=True)
class Seen:
    """A first observation of an episode, or one that says all there is to know, and its value."""

    title: str
    observation: tuple[float, ...]
    rewards: tuple[float, ...]
    """Of this and the next steps, by the best actions."""
    forever: bool = False
    """The last of them is earned again and again."""

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
    """What an algorithm gets wrong that fails."""
    environment: str
    values: tuple[Seen, ...] = ()
    best: float | None = None
    """The return of an episode by the best actions."""
    at_most: float | None = None
    """The return that nobody can exceed who plays by the rules, chance included."""
    needs: Literal["nothing", "memory", "mask", "state", "game"] = "nothing"
    """`state`: a critic that sees more than its actor, to whom the observation is hidden then."""
    discounted: bool = False
    """Whether the answers depend on the discount."""
    gradient_steps: int = 300
    """After which the answers should be right to 2 %, by a learning rate of `learning_rate` that falls to zero."""
    learning_rate: float = 3e-3
    env_args: Mapping[str, Any] = field(default_factory=dict)


CASES = (
    ProbeCase(
        "constant",
        "a critic that does not learn",
        f"{PLACE}:ConstantReward",
        values=(Seen("value", (1.0,), (1.0,)),),
    ),
    ProbeCase(
        "seen",
        "observations or rewards of other steps or lanes",
        f"{PLACE}:SeenReward",
        values=(Seen("value at -1", (-1.0,), (-1.0,)), Seen("value at 1", (1.0,), (1.0,))),
    ),
    ProbeCase(
        "delayed",
        "rewards that are discounted wrongly or shifted by a step",
        f"{PLACE}:DelayedReward",
        values=(Seen("value at first", (-1.0,), (0.0, 1.0)), Seen("value then", (1.0,), (1.0,))),
        discounted=True,
    ),
    ProbeCase(
        "endless",
        "truncation taken for termination: no bootstrap, or not from the final observation",
        f"{PLACE}:Endless",
        values=(Seen("value", (1.0,), (0.2,), forever=True),),
        discounted=True,
        gradient_steps=600,
        learning_rate=1e-3,
    ),
    ProbeCase(
        "ending",
        "termination taken for truncation: values that reach beyond an episode's end",
        f"{PLACE}:Endless",
        values=(Seen("value", (1.0,), (0.2,)),),
        env_args={"length": 1, "terminates": True},
    ),
    ProbeCase(
        "chosen",
        "a policy that does not climb, or climbs the wrong way",
        f"{PLACE}:ChosenReward",
        best=1.0,
    ),
    ProbeCase(
        "credited",
        "advantages that do not reach the action that earned them",
        f"{PLACE}:CreditedReward",
        best=1.0,
        gradient_steps=600,
    ),
    ProbeCase(
        "memory",
        "a memory that is not carried from step to step, or not learned through",
        f"{PLACE}:Remembered",
        best=1.0,
        needs="memory",
        gradient_steps=600,
    ),
    ProbeCase(
        "leak",
        "a memory that goes on over an episode's end",
        f"{PLACE}:Leaking",
        at_most=0.6,
        needs="memory",
        gradient_steps=400,
    ),
    ProbeCase(
        "masked",
        "actions that the mask forbids",
        f"{PLACE}:Masked",
        best=1.0,
        needs="mask",
    ),
    ProbeCase(
        "state",
        "a critic that does not see the state of the game",
        f"{PLACE}:SeenReward",
        values=(Seen("value at -1", (-1.0,), (-1.0,)), Seen("value at 1", (1.0,), (1.0,))),
        needs="state",
    ),
    ProbeCase(
        "peeking",
        "an actor that sees what is meant for the critic alone",
        f"{PLACE}:CreditedReward",
        at_most=0.25,
        needs="state",
    ),
    ProbeCase(
        "turns",
        "rewards that come while others move, lanes with a time of their own",
        f"pettingzoo:{PLACE}:turn_bonus",
        values=(Seen("value at first", (-1.0,), (1.0, 1.0)), Seen("value then", (1.0,), (1.0,))),
        best=2.0,
        needs="game",
        discounted=True,
        gradient_steps=600,
    ),
)


def choose_cases(names: tuple[str, ...]) -> tuple[ProbeCase, ...]:
    """The probes of these names, or all of them. ValueError for a name that there is not."""
    known = {case.name: case for case in CASES}
    for name in names:
        if name not in known:
            raise ValueError(f"no probe {name!r}{nearest(name, known)}")
    return tuple(known[name] for name in names) if names else CASES
