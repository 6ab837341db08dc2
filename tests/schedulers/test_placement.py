"""The choice of a host for a worker."""

from __future__ import annotations

import pytest

from srl.api.experiment import Resources
from srl.api.worker import WorkerId
from srl.schedulers.hosts.placement import (
    DoesNotFit,
    HostCapacity,
    PlacedWorker,
    check,
    check_all,
    choose,
    why_waiting,
    workers_to_move,
)


def test_the_host_with_the_largest_share_of_free_cpus_is_chosen() -> None:
    hosts = [HostCapacity("a", 4, used_cpus=2), HostCapacity("b", 2, used_cpus=0.5)]
    found = choose(hosts, Resources())
    assert found is not None
    assert found.host == "b"


def test_a_replacement_prefers_its_previous_host() -> None:
    hosts = [HostCapacity("a", 4, used_cpus=3), HostCapacity("b", 4)]
    found = choose(hosts, Resources(), previous="a")
    assert found is not None
    assert found.host == "a"


def test_a_trainer_prefers_the_controllers_host_unless_it_had_another_or_leaves_a_gpu_unused() -> None:
    hosts = [HostCapacity("a", 8), HostCapacity("b", 4, used_cpus=3, has_controller=True)]
    assert choose(hosts, Resources(), with_controller=True) is hosts[1]
    assert choose(hosts, Resources(), previous="a", with_controller=True) is hosts[0]
    assert choose(hosts, Resources(cpu=2), with_controller=True) is hosts[0]
    assert choose(hosts, Resources()) is hosts[0]
    with_gpu = [HostCapacity("a", 8), HostCapacity("b", 4, gpus=1, has_controller=True)]
    assert choose(with_gpu, Resources(), with_controller=True) is with_gpu[0]


def test_the_check_of_all_workers_places_trainers_as_the_run_does() -> None:
    hosts = [HostCapacity("a", 4), HostCapacity("b", 2, has_controller=True)]
    wanted = [("trainers/0", Resources()), ("actors/0", Resources(2, node="b"))]
    check_all(hosts, wanted)
    with pytest.raises(DoesNotFit, match="actors/0"):
        check_all(hosts, wanted, with_controller=["trainers/0"])


def test_workers_without_a_gpu_leave_hosts_with_gpus_to_others() -> None:
    hosts = [HostCapacity("gpu", 8, gpus=1), HostCapacity("cpu", 2)]
    assert [choose(hosts, Resources(gpu=gpu)) for gpu in (0.0, 0.5)] == [hosts[1], hosts[0]]


def test_workers_without_a_node_leave_hosts_with_a_label_to_others() -> None:
    hosts = [HostCapacity("b", 2, labels=("fast",)), HostCapacity("a", 1)]
    check_all(hosts, [("trainers/0", Resources()), *([("actors", Resources(node="fast"))] * 2)])
    assert choose(hosts[:1], Resources()) is hosts[0]


def test_cpus_are_shared_only_where_a_host_was_lost_and_gpus_never() -> None:
    hosts = [HostCapacity("a", 2, gpus=1, used_cpus=2, used_gpus=1)]
    assert choose(hosts, Resources()) is None
    assert choose(hosts, Resources(), share_cpus=True) is hosts[0]
    assert choose(hosts, Resources(gpu=1), share_cpus=True) is None


def test_workers_move_from_hosts_whose_cpus_are_shared_to_hosts_with_room() -> None:
    crowded, idle = HostCapacity("a", 2, used_cpus=5), HostCapacity("b", 2)
    placed = [
        PlacedWorker(WorkerId("actors", i, 0), None, "", Resources(node="" if i else "a"), 0, 0, "a") for i in range(5)
    ]
    assert workers_to_move([crowded], placed) == []
    assert workers_to_move([crowded, idle], placed[1:]) == placed[1:3]
    assert workers_to_move([crowded, HostCapacity("b", 9)], placed[1:]) == placed[1:4]  # no more than necessary
    assert workers_to_move([crowded, idle], placed) == placed[1:3]
    assert (crowded.used_cpus, idle.used_cpus) == (5, 0)  # capacities change when the workers have ended


def test_fractions_of_a_gpu_add_up() -> None:
    host = HostCapacity("a", 8, gpus=1)
    for _ in range(4):
        assert choose([host], Resources(gpu=0.25)) is host
        host.take(Resources(gpu=0.25))
    assert choose([host], Resources(gpu=0.25)) is None
    host.give_back(Resources(gpu=0.25))
    assert choose([host], Resources(gpu=0.25)) is host


@pytest.mark.parametrize(
    ("needs", "named"),
    [
        (Resources(cpu=5), "5 CPUs"),
        (Resources(gpu=2), "2 GPUs"),
        (Resources(memory_mb=999), "999 MB"),
        (Resources(node="gpu*"), "a host named gpu"),
    ],
)
def test_an_error_names_the_needs_of_a_worker_and_the_resources_of_the_hosts(needs: Resources, named: str) -> None:
    with pytest.raises(DoesNotFit, match="no host can hold actors/3") as caught:
        check([HostCapacity("a", 4, memory_mb=500)], needs, "actors/3")
    assert named in str(caught.value)
    assert "a: 4 CPUs" in str(caught.value)


def test_too_many_workers_together_are_refused() -> None:
    wanted = [(f"actors/{index}", Resources()) for index in range(4)]
    check_all([HostCapacity("a", 2), HostCapacity("b", 2)], wanted)
    with pytest.raises(DoesNotFit, match="4 workers need 4 CPUs, and 2 hosts have 3"):
        check_all([HostCapacity("a", 2), HostCapacity("b", 1)], wanted)


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (Resources(gpu=1), "no remaining host has 1 GPU"),
        (Resources(node="fast*"), "no remaining host is named fast*"),
        (Resources(memory_mb=600), "no remaining host has room for 1 CPU, 600 MB"),
        (Resources(memory_mb=400), ""),
    ],
)
def test_the_reason_why_a_worker_waits_names_what_the_hosts_lack(needs: Resources, why: str) -> None:
    hosts = [HostCapacity("a", 2, memory_mb=1000, used_mb=500, used_cpus=2)]
    assert why_waiting(hosts, needs, share_cpus=True) == why
    assert why_waiting([], needs) == ""
