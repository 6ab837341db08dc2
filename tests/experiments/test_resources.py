"""Resources of worker groups, by their device and by request, also through `srl submit --dry-run`."""

from __future__ import annotations

import pytest

from srl.algorithms.ppo.config import PPOConfig
from srl.api.experiment import Experiment, Resources, WorkerGroup
from srl.cli.main import main
from srl.experiments.graph.resources import gpu_shares, with_resources

NO_CONFIG: object = None


def experiment() -> Experiment:
    groups = (("trainers", Resources(gpu=1.0)), ("trainers-b", Resources()), ("actors", Resources(niceness=5)))
    return Experiment("run", 0, tuple(WorkerGroup(name, NO_CONFIG, 1, resources) for name, resources in groups), ())  # type: ignore[arg-type]


def resources_of(*requests: str) -> dict[str, Resources]:
    return {group.name: group.resources for group in with_resources(experiment(), requests).groups}


def test_the_last_request_wins_and_other_resources_are_kept() -> None:
    found = resources_of("trainers*=cpu:4,memory_mb:8000,node:a100*", "trainers=gpu:0.5,cpu:2")
    assert found["trainers"] == Resources(2.0, 0.5, 8000, "a100*")
    assert found["trainers-b"] == Resources(4.0, 0.0, 8000, "a100*")
    assert found["actors"] == Resources(niceness=5)


@pytest.mark.parametrize(
    ("request_text", "message"),
    [
        ("actors", "as GROUP=NAME:AMOUNT"),
        ("actor=cpu:2", "no group 'actor'; did you mean 'actors'"),
        ("actors=cpus:2", "no resource 'cpus'; did you mean 'cpu'"),
        ("actors=cpu", "cpu must be a number of at least 0; found ''"),
        ("actors=cpu:-1", "found '-1'"),
        ("actors=cpu:nan", "found 'nan'"),
        ("actors=memory_mb:1.5", "an integer of at least 0; found '1.5'"),
        ("actors=node:", "node must be a name"),
    ],
)
def test_the_error_for_an_invalid_request_names_it(request_text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        resources_of(request_text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("device", "trainers", "policies", "shares"),
    [
        ("auto", 1, 1, (0.0, 0.0)),
        ("cpu", 1, 0, (0.0, 0.0)),
        ("cuda", 2, 0, (1.0, 0.0)),
        ("cuda:1", 1, 2, (0.5, 0.25)),
        ("cuda", 4, 1, (0.5, 1.0)),
    ],
)
def test_each_trainer_has_a_gpu_and_policy_workers_share_them(
    device: str, trainers: int, policies: int, shares: tuple[float, float]
) -> None:
    assert gpu_shares(PPOConfig(device=device), trainers, policies) == shares


def test_a_batch_script_requests_gpus_that_this_machine_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ("--hosts", "3", "--actors", "4", "--lanes", "8", "--horizon", "16", "--ppo.device", "cuda")
    requests = ("--resources", "trainers=cpu:4,memory_mb:8000", "actors=cpu:2,node:fast")
    assert main(["submit", "CartPole-v1", *shape, *requests, "--dry-run"]) == 0
    learning, acting = capsys.readouterr().out.split("#SBATCH hetjob\n")
    assert (
        "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=5\n#SBATCH --gres=gpu:1\n"
        "#SBATCH --mem=8000\n"
    ) in learning  # a trainer, and a policy worker that shares its GPU
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=4\n" in acting
    assert "#SBATCH --constraint=fast\n" in acting
    assert "gres" not in acting
