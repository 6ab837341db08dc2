"""Options that change during a run: which workers they concern, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from srl.algorithms.ppo.config import PPOConfig
from srl.api.control import ChangeOption, OptionValue
from srl.api.experiment import WorkerGroup
from srl.api.worker import Worker, WorkerConfig
from srl.controller.option_changes import OptionChanges


@dataclass(frozen=True)
class Learning(WorkerConfig):
    policy: str
    algorithm: PPOConfig = field(default_factory=PPOConfig)

    def build(self, context: object) -> Worker:
        raise NotImplementedError

    def committed_policy(self) -> str:
        return self.policy

    def changeable(self) -> tuple[str, ...]:
        return self.algorithm.changeable()

    def with_option(self, name: str, value: OptionValue) -> Learning | None:
        known = name in self.algorithm.changeable()
        return Learning(self.policy, self.algorithm.with_option(name, value)) if known else None


@pytest.fixture
def changes() -> OptionChanges:
    groups = [WorkerGroup(f"trainers-{policy}", Learning(policy), 1) for policy in ("hiders", "seekers")]
    return OptionChanges({group.name: group for group in groups})


def rates(changes: OptionChanges) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    for group in changes.groups.values():
        assert isinstance(group.config, Learning)
        found.append((group.config.algorithm.learning_rate, group.config.algorithm.learning_rate_schedule))
    return found


def test_a_change_reaches_all_policies_and_ends_the_schedule(changes: OptionChanges) -> None:
    concerned, message = changes.change("learning_rate", 0.25)
    assert concerned == {"trainers-hiders", "trainers-seekers"}
    assert message == ChangeOption("learning_rate", 0.25, 1)
    assert rates(changes) == [(0.25, "constant")] * 2


def test_a_prefix_limits_a_change_to_one_policy(changes: OptionChanges) -> None:
    concerned, message = changes.change("seekers/learning_rate", 1)
    assert (concerned, message) == ({"trainers-seekers"}, ChangeOption("learning_rate", 1, 1))
    assert rates(changes)[0] == (PPOConfig().learning_rate, "linear")


@pytest.mark.parametrize(
    ("name", "value", "texts"),
    [
        ("learning_rat", 0.1, ("learning_rat cannot change", "learning_rate", "env.NAME")),
        ("unknown-policy/learning_rate", 0.1, ("cannot change",)),
        ("gamma", 0.9, ("cannot change",)),
        ("learning_rate", -1.0, ("learning_rate", "positive")),
        ("learning_rate", "fast", ("learning_rate", "float", "fast")),
        ("epochs", 1.5, ("epochs", "int", "1.5")),
    ],
)
def test_what_cannot_change_is_refused_and_nothing_changes(
    changes: OptionChanges, name: str, value: OptionValue, texts: tuple[str, ...]
) -> None:
    before = dict(changes.groups)
    with pytest.raises(ValueError) as raised:
        changes.change(name, value)
    assert all(text in str(raised.value) for text in texts), raised.value
    assert (changes.groups, changes.values, changes.number) == (before, {}, 0)


def test_a_resumed_run_starts_with_the_last_values(changes: OptionChanges) -> None:
    changes.change("learning_rate", 0.5)
    changes.change("learning_rate", 0.25)
    again = OptionChanges({name: WorkerGroup(name, Learning(name), 1) for name in ("trainers",)})
    again.restore(changes.values, changes.number)
    assert rates(again) == [(0.25, "constant")]
    assert again.change("clip", 0.1)[1].number == 3
