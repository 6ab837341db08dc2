"""Choice of checkpoints, and evaluation of runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.trained_runs import latest_checkpoint, untrained

import srl
from srl.cli.main import main
from srl.results.evaluate import Evaluation, summary
from srl.storage import checkpoints
from srl.storage.run_directory import create
from srl.storage.saved_policies import choose_checkpoint
from srl.workers.episode_player import EpisodePlayer


def test_a_checkpoint_is_chosen_by_age_score_step_or_path(tmp_path: Path) -> None:
    run = create(tmp_path, "run")
    with pytest.raises(FileNotFoundError, match="no checkpoint yet"):
        choose_checkpoint(run, "latest")
    first, second = (checkpoints.write(run.checkpoints, step, {"a": np.zeros(1)}, {}) for step in (100, 200))
    assert choose_checkpoint(run, "latest") == second
    assert choose_checkpoint(run, 100) == choose_checkpoint(run, "100") == choose_checkpoint(run, first) == first
    with pytest.raises(ValueError, match=r"has no checkpoint of step 150; it has 100, 200"):
        choose_checkpoint(run, 150)
    best = checkpoints.write(run.checkpoints / checkpoints.BEST, 150, {"a": np.zeros(1)}, {})
    assert choose_checkpoint(run, "best") == best
    assert choose_checkpoint(run, "latest") == second


def test_evaluation_uses_one_thread_and_restores_the_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that wait for each other at each small batch made `srl eval` ten times slower, and more on a busy
    machine."""
    run = untrained(tmp_path, "CartPole-v1")
    seen, step = [], EpisodePlayer.step

    def watched(player: EpisodePlayer) -> None:
        seen.append(torch.get_num_threads())
        step(player)

    monkeypatch.setattr(EpisodePlayer, "step", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert len(srl.evaluate(run.path, episodes=17).returns) == 17
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


def test_episodes_that_do_not_end_are_truncated_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained(tmp_path, "srl.testing.environments:Tracer", {"length": 10**6})
    words = ["eval", str(run.path), "--episodes", "17", "--max-steps", "4"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["episodes"], facts["truncated"], facts["max_steps"]) == (17, 17, 4)
    assert (set(facts["returns"]), set(facts["lengths"])) == ({1.0 + 2.0 + 3.0 + 4.0}, {4.0})
    assert main(words) == 0
    assert "17 of the episodes did not end within 4 steps and were truncated" in capsys.readouterr().out
    assert main([*words[:-1], "0"]) == 2
    assert "max_steps must be at least 1" in capsys.readouterr().err
    finite = untrained(tmp_path / "finite", "srl.testing.environments:Tracer", {"length": 4})
    assert srl.evaluate(finite.path, episodes=3, max_steps=4).truncated == 0


def test_a_policy_is_scored_with_other_options_and_in_another_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = untrained(tmp_path, "srl.testing.environments:Tracer", {"length": 9})
    words = ["eval", str(run.path), "--episodes", "3"]
    assert main([*words, "--env-arg", "length=2"]) == 0
    assert "3 episodes\n  return 3.00 ± 0.00" in capsys.readouterr().out
    assert main([*words, "--env", "srl.testing.environments:Tracer"]) == 0
    assert "return 15.0 ± 0.0" in capsys.readouterr().out
    assert main([*words, "--env-arg", "lenght=2"]) == 2
    assert "has no option 'lenght'; did you mean 'length'?" in capsys.readouterr().err
    assert main([*words, "--env", "CartPole-v1"]) == 2
    assert "trained with observation space.shape [3]; the environment now has [4]" in capsys.readouterr().err


GOAL = """
from srl.testing.environments import Tracer

class Goal(Tracer):
    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {**info, "is_success": self.episode % 2 == 0, "distance": 0.25}
"""


def test_an_evaluation_reports_what_the_infos_of_the_environment_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "goal.py").write_text(GOAL)
    run = untrained(tmp_path / "runs", f"{tmp_path}/goal.py:Goal", log_info=("distance",))
    words = ["eval", str(run.path), "--episodes", "32", "--env-arg", "length=2", "--trust-code"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  return 3.00 ± 0.00 (95 % interval of the mean), from 3.00 to 3.00",
        "  distance 0.250 ± 0.000",
        "  is_success 50.0 % of 32 episodes (95 % interval 33.6 to 66.4 %)",
    ]


def test_the_summary_has_rates_and_digits_for_small_returns_and_each_policy() -> None:
    facts = {"is_success": (1.0, 1.0, 0.0, 0.0), "speed": (2.0, 2.0, 4.0, 4.0)}
    alone = Evaluation(
        (0.61, 0.62, 0.61, 0.62), (1.0,) * 4, Path(), {"policy": (0.61, 0.62, 0.61, 0.62)}, 0, 4, {"policy": facts}
    )
    assert summary(alone) == [
        "return 0.6150 ± 0.0092 (95 % interval of the mean), from 0.61 to 0.62",
        "is_success 50.0 % of 4 episodes (95 % interval 15.0 to 85.0 %)",
        "speed 3.0 ± 1.8",
    ]
    game = Evaluation((3.0, 3.0, -3.0), (1.0,) * 3, Path(), {"hiders": (3.0, 3.0), "seekers": (-3.0,)}, 0, 1)
    assert summary(game) == [
        "hiders return 3.00 ± 0.00 (95 % interval of the mean, 2 agents), from 3.00 to 3.00",
        "seekers return -3.00 (95 % interval of the mean), from -3.00 to -3.00",
    ]


def test_loading_one_of_several_policies_asks_which(tmp_path: Path) -> None:

    run = untrained(tmp_path, "CartPole-v1")
    arrays, metadata = latest_checkpoint(run.path)
    both = {"hiders": arrays["policy/parameters"], "seekers": arrays["policy/parameters"]}
    metadata["policies"] = dict.fromkeys(both, metadata["policies"]["policy"])
    metadata["description"] = dict.fromkeys(both, metadata["description"]["policy"])
    checkpoints.write(run.checkpoints, 128, {f"{name}/parameters": value for name, value in both.items()}, metadata)
    with pytest.raises(ValueError, match=r"has several policies; choose one: hiders, seekers"):
        srl.load(run.path)
    assert srl.load(run.path, policy="seekers").act([0.0] * 4) in (0, 1)


def test_the_error_for_a_missing_mask_says_where_it_comes_from(tmp_path: Path) -> None:
    policy = srl.load(untrained(tmp_path, "Taxi").path)
    with pytest.raises(
        ValueError, match=r'found 3\. .* act\({"observation": observation, "action_mask": info\["action_'
    ):
        policy.act(3)
    with pytest.raises(ValueError, match=r"it has no 'action_mask'\. .* act\({\*\*observation, "):
        policy.act({"observation": 3})
    mask = np.array([0, 0, 1, 0, 0, 0], np.int8)
    assert policy.act({"observation": 3, "action_mask": mask}) == 2
