"""Goals of a run: values of episode statistics at which it ends early (`--until return>=475`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srl.api.status import EPISODE_WINDOW
from srl.base.errors import nearest
from srl.controller.policy_gauges import PolicyGauges
from srl.experiments.options.sections import parse_goal


@dataclass(frozen=True)
class Goal:
    """A bound for the mean of a statistic over the last 100 episodes of a policy."""

    policy: str
    name: str
    sign: str  # `>=` or `<=`
    bound: float

    def value(self, gauges: Mapping[str, PolicyGauges]) -> float | None:
        """Return the mean if it is within the bound."""
        mean = gauges[self.policy].episodes.mean(self.name)
        if mean is None or not (mean >= self.bound if self.sign == ">=" else mean <= self.bound):
            return None
        return mean


class Goals:
    """Goals of a run, which ends when all of them are reached, each over 100 episodes since it started or resumed."""

    def __init__(self, texts: Sequence[str], until_return: float | None, learning: Sequence[str]) -> None:
        self._goals = [goal_of(text, learning) for text in texts]
        if until_return is not None:
            self._goals.append(goal_of(f"return>={until_return}", learning))
        self._checked: set[Goal] = set()
        self.episodes_before: dict[str, int] = {}  # policy -> its number of episodes when the run was resumed

    def unknown(self, gauges: Mapping[str, PolicyGauges]) -> str:
        """Describe a goal whose statistic the last 100 episodes of its policy do not have, once."""
        for goal in self._goals:
            episodes = gauges[goal.policy].episodes
            if episodes.count < EPISODE_WINDOW or goal in self._checked:
                continue
            self._checked.add(goal)
            if episodes.mean(goal.name) is None:
                hint = nearest(goal.name, episodes.names)
                return f"--until {goal.name}{goal.sign}{goal.bound:g}: no episode reports {goal.name!r} so far{hint}"
        return ""

    def reached(self, gauges: Mapping[str, PolicyGauges]) -> str:
        """Describe the goals if all of them are reached; otherwise return an empty string."""
        texts = []
        for goal in self._goals:
            value = goal.value(gauges)
            count = gauges[goal.policy].episodes.count - self.episodes_before.get(goal.policy, 0)
            if value is None or count < EPISODE_WINDOW:
                return ""
            name = goal.name if len(gauges) == 1 else f"{goal.policy}/{goal.name}"
            number = f"{value:.1f}" if abs(value) >= 9.95 else f"{value:.3g}"
            texts.append(f"mean {name} {number} reached the goal of {goal.bound:g}")
        return ", ".join(texts)


def goal_of(text: str, learning: Sequence[str]) -> Goal:
    """Return the goal that a text such as `return>=475` or `hiders/return>=3` describes. Raises ValueError."""
    full, sign, bound = parse_goal(text)
    policy, slash, name = full.partition("/")
    if not slash:
        if len(learning) > 1:
            each = ", ".join(f"--until '{one}/{full}{sign}{bound:g}'" for one in learning)
            raise ValueError(f"several policies learn; name the one whose {full} ends the run: {each}")
        return Goal(learning[0], full, sign, bound)
    if policy not in learning:
        raise ValueError(f"the goal {text!r} names no policy that learns{nearest(policy, learning)}")
    return Goal(policy, name, sign, bound)
