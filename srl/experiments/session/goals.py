"""Statistics of episodes that options name: goals at which a run ends early (`--until return>=475`), and a check of all
such names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srl.api.block import LENGTH, RETURN
from srl.api.status import EPISODE_WINDOW
from srl.base.errors import nearest
from srl.controller.policy_gauges import PolicyGauges
from srl.experiments.options.sections import parse_goal
from srl.experiments.options.train_options import TrainOptions


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
        self.goals = [goal_of(text, learning) for text in texts]
        if until_return is not None:
            self.goals.append(goal_of(f"return>={until_return}", learning))
        self.episodes_before: dict[str, int] = {}  # policy -> its number of episodes when the run was resumed

    def reached(self, gauges: Mapping[str, PolicyGauges]) -> str:
        """Describe the goals if all of them are reached; otherwise return an empty string."""
        texts = []
        for goal in self.goals:
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


@dataclass(frozen=True)
class _Named:
    """A statistic that an option names, and the policies of which one must report it."""

    option: str  # as on the command line
    name: str
    policies: tuple[str, ...]
    consequence: str = ""


class NamedStatistics:
    """The statistics that `--until`, `--best` and `--log-info` name. Which ones there are is known only from episodes,
    so a misspelled name is reported during the run."""

    def __init__(self, options: TrainOptions, goals: Goals, learning: Sequence[str]) -> None:
        every = tuple(learning)
        best = options.checkpoints.best
        named = [
            _Named(f"--until {goal.name}{goal.sign}{goal.bound:g}", goal.name, (goal.policy,)) for goal in goals.goals
        ]
        named += [
            _Named(f"--best {best}", best.removeprefix("-"), (policy,), ", so no checkpoint is the best")
            for policy in every
        ]
        named += [
            _Named(f"--log-info {name}", name, every, " as a number in its last info") for name in options.run.log_info
        ]
        self._unchecked = named

    def unknown(self, gauges: Mapping[str, PolicyGauges], ended: bool = False) -> list[str]:
        """Describe names that no episode has, once each: after 100 episodes of the policy, or when the run has
        `ended`."""
        due = [
            one
            for one in self._unchecked
            if sum(map(_num_episodes, _of(one, gauges))) >= (1 if ended else EPISODE_WINDOW)
        ]
        self._unchecked = [one for one in self._unchecked if one not in due]
        texts = []
        for one in due:
            known = {name for policy in _of(one, gauges) for name in _names(policy)}
            if one.name not in known:
                texts.append(
                    f"{one.option}: no episode has reported {one.name!r}{one.consequence}{nearest(one.name, known)}"
                )
        return texts


def _of(named: _Named, gauges: Mapping[str, PolicyGauges]) -> list[PolicyGauges]:
    return [gauges[policy] for policy in named.policies]


def _num_episodes(policy: PolicyGauges) -> int:
    evaluation = policy.evaluation
    return policy.episodes.count + (evaluation.count * evaluation.episodes if evaluation is not None else 0)


def _names(policy: PolicyGauges) -> set[str]:
    evaluated = {RETURN, LENGTH, *policy.evaluation.facts} if policy.evaluation is not None else set()
    return {*policy.episodes.names, *evaluated}
