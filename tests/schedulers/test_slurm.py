"""Slurm: the layout of a job, the commands, the engine and its agents."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.fake_agents import new_identity
from support.waiting import wait_for

from srl.api.experiment import Resources, WorkerGroup
from srl.schedulers.agent import join
from srl.schedulers.agent.join import REFUSED
from srl.schedulers.engines import slurm
from srl.schedulers.engines.components import Component, components
from srl.schedulers.engines.slurm import Node, SlurmEngine, lost_controller, nodes_of_job, requeue_other_components
from srl.schedulers.engines.slurm_commands import (
    SlurmError,
    batch_script,
    check_slurm,
    job_state,
    job_states,
)
from srl.transports.join_ticket import JoinFile


def group(name: str, count: int, **needs: object) -> WorkerGroup:
    return WorkerGroup(name, None, count, Resources(**needs))  # type: ignore[arg-type]


def test_groups_that_need_the_same_kind_of_node_share_a_component() -> None:
    assert components([group("trainers", 1), group("actors", 6)], 3) == [Component(3, 3)]


def test_groups_with_gpus_get_one_node_and_the_others_the_rest() -> None:
    groups = [group("trainers", 1, gpu=1, cpu=4), group("policies", 2, gpu=0.5), group("actors", 8, memory_mb=100)]
    assert components(groups, 3) == [Component(1, 6, gpus=2), Component(2, 4, memory_mb=400)]


def test_more_kinds_of_nodes_than_hosts_are_refused() -> None:
    groups = [group("trainers", 1, gpu=1), group("actors", 2), group("heavy", 1, node="bigmem")]
    with pytest.raises(ValueError, match="at least --hosts 2"):
        components(groups, 1)
    assert components(groups, 2) == [Component(1, 3, gpus=1), Component(1, 1, constraint="bigmem")]
    assert [part.constraint for part in components(groups, 3)] == ["", "", "bigmem"]


def test_groups_without_a_gpu_share_the_only_host_with_one() -> None:
    groups = [group("trainers", 1, gpu=0.5), group("policies", 3, gpu=0.5 / 3), group("actors", 4)]
    assert components(groups, 1) == [Component(1, 8, gpus=1)]


def test_a_node_can_hold_its_workers() -> None:
    assert components([group("trainers", 1, memory_mb=8000), group("actors", 3)], 2) == [Component(2, 2, 0, 8000)]
    assert components([group("actors", 3, cpu=2)], 2) == [Component(2, 4)]  # 3 CPUs each would do for two of them


def test_the_script_of_a_heterogeneous_job_has_common_options_once() -> None:
    parts = [Component(1, 4, gpus=1), Component(2, 8, memory_mb=100, constraint="fast")]
    text = batch_script("r", parts, Path("/runs/r/log"), ["python", "-m", "x", "a b"], "gpu", ["time=1:00"])
    first, second = text.split("#SBATCH hetjob\n")
    assert first.startswith("#!/bin/bash\n#SBATCH --job-name=srl-r\n#SBATCH --output=/runs/r/log\n")
    for line in ("--requeue", "--no-kill", "--nodes=1", "--cpus-per-task=4", "--gres=gpu:1", "--partition=gpu"):
        assert f"#SBATCH {line}\n" in first
    assert second == (
        "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=8\n#SBATCH --mem=100\n"
        "#SBATCH --constraint=fast\n#SBATCH --partition=gpu\n#SBATCH --time=1:00\nexec python -m x 'a b'\n"
    )


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_errors_name_a_missing_slurm_and_a_missing_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SlurmError, match="Slurm is not installed here"):
        check_slurm("")
    put(tmp_path, "sbatch", "")
    put(tmp_path, "sinfo", "echo main; echo gpu")
    check_slurm("gpu")
    with pytest.raises(SlurmError, match="no partition 'gpus'; did you mean 'gpu'"):
        check_slurm("gpus")
    put(tmp_path, "sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SlurmError, match="Unable to contact"):
        check_slurm("")


def test_nodes_are_read_from_the_variables_that_slurm_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    put(tmp_path, "scontrol", 'test "$3" = "a[1-2]" && echo a1 && echo a2 || echo "$3"')
    plain = {"SLURM_JOB_NODELIST": "a[1-2]", "SLURM_CPUS_PER_TASK": "3"}
    assert nodes_of_job(plain, ["x"]) == [Node("a1", 3, "x", None), Node("a2", 3, "x", None)]
    het = {
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "g",
        "SLURM_CPUS_PER_TASK_HET_GROUP_0": "4",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "a[1-2]",
        "SLURM_CPUS_PER_TASK_HET_GROUP_1": "2",
    }
    assert nodes_of_job(het, ["", "fast"]) == [Node("g", 4, "", 0), Node("a1", 2, "fast", 1), Node("a2", 2, "fast", 1)]


def test_a_job_without_its_batch_node_has_lost_its_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for nodes, lost in {"a b": False, "b c": True}.items():
        text = f'case "$*" in *job*) echo "NodeList=x BatchHost=a";; *) for n in {nodes}; do echo $n; done;; esac'
        put(tmp_path, "scontrol", text)
        assert lost_controller("7") is lost
    # A heterogeneous job: only its first component has a batch host.
    het = 'echo "JobId=7 NodeList=x BatchHost=a"; echo "JobId=8 NodeList=y BatchHost=c"'
    put(tmp_path, "scontrol", f'case "$*" in *job*) {het};; *) test "$3" = x && echo a || echo b;; esac')
    assert not lost_controller("7")
    put(tmp_path, "scontrol", "exit 1")
    assert not lost_controller("7")  # no answer of Slurm is no evidence


def test_an_agent_retries_until_slurm_reports_that_the_controller_is_lost_and_requeues_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no deadline, because Slurm needs minutes to notice."""
    hours = itertools.count(0.0, 3600.0)
    monkeypatch.setattr(slurm, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    monkeypatch.setattr(slurm, "QUERY_SECONDS", 0.0)
    monkeypatch.setattr(join, "start_early", lambda: None)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    calls = f"echo $1 >> {tmp_path}/calls; n=$(grep -c -e $1 {tmp_path}/calls)"
    job = "echo NodeList=x BatchHost=$(test $n -le 2 && echo b || echo a)"
    again = 'test $n -ge 2 || { echo "Job is being requeued" >&2; exit 1; }'
    put(tmp_path, "scontrol", f'{calls}; case "$*" in *job*) {job};; requeue*) {again};; *) echo b;; esac')
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        path = JoinFile(tmp_path / "join", new_identity(), "run", address).path
        assert slurm.main(str(path), "b", "1") == 1
    assert (tmp_path / "calls").read_text().split().count("requeue") == 2
    printed = capsys.readouterr().out
    assert printed.count("no controller at") == 4
    assert "Job is being requeued" in printed
    path.unlink()  # the run has ended, but Slurm does not end the agent
    assert slurm.main(str(path), "b", "1") == REFUSED
    assert "no join file" in capsys.readouterr().out


@pytest.mark.parametrize(("size", "restarts", "queued"), [("2", 1, True), ("2", 0, False), ("", 1, False)])
def test_components_are_requeued_only_if_slurm_has_requeued_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, restarts: int, queued: bool
) -> None:
    """A canceled job must not come back."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    job = f'echo "JobId=7 Restarts={restarts}"; echo "JobId=8 Restarts=5"'
    again = f"touch {tmp_path}/queued; echo 'Job is pending execution' >&2; exit 1"
    put(tmp_path, "scontrol", f'case "$1" in requeue) {again};; *) {job};; esac')
    requeue_other_components({"SLURM_JOB_ID": "7", **({"SLURM_HET_SIZE": size} if size else {})})
    assert (tmp_path / "queued").exists() is queued


def test_the_state_of_a_heterogeneous_job_is_that_of_a_component_that_can_never_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    put(tmp_path, "squeue", "printf '7+0|PENDING|Resources\n7+1|PENDING|BadConstraints\n8|RUNNING|None\n'")
    assert job_states(["7", "8", "9"]) == {"7": ("PENDING", "BadConstraints"), "8": ("RUNNING", "None")}
    put(tmp_path, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert job_state("9") == ("", "")


def test_the_step_of_a_lost_node_does_not_delay_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "srun", f"trap '' TERM; echo $$ > {tmp_path}/pid; sleep 1000 & wait; wait")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "CLOSE_SECONDS", 0.0)
    engine = SlurmEngine([Node("n0", 1, "", None)], tmp_path, tmp_path / "join")
    engine.start(lambda: new_identity().ticket("run", "127.0.0.1:1"))
    pid = tmp_path / "pid"
    group = int(wait_for(lambda: pid.read_text() if pid.exists() else None, "the step to start"))
    engine.close()
    left = [process for process in psutil.process_iter() if _in_group(process.pid, group)]
    wait_for(lambda: not any(process.is_running() for process in left), "the end of the step")


def _in_group(process: int, group: int) -> bool:
    try:
        return os.getpgid(process) == group
    except ProcessLookupError:
        return False
