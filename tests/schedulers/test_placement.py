from __future__ import annotations

import pytest

from srl.api.experiment import Resources
from srl.schedulers.hosts.placement import NoRoom, Room, check, check_all, choose, lacking, relief
from srl.schedulers.hosts.waiting import WAIT_SECONDS, Waits


def test_the_host_with_the_largest_share_of_free_cpus_is_chosen() -> None:
    rooms = [Room("a", 4, used_cpus=2), Room("b", 2, used_cpus=0.5)]
    found = choose(rooms, Resources())
    assert found is not None
    assert found.host == "b"


def test_a_replacement_prefers_its_former_host() -> None:
    rooms = [Room("a", 4, used_cpus=3), Room("b", 4)]
    found = choose(rooms, Resources(), former="a")
    assert found is not None
    assert found.host == "a"


def test_workers_without_a_gpu_leave_hosts_with_gpus_to_others() -> None:
    rooms = [Room("gpu", 8, gpus=1), Room("cpu", 2)]
    assert [choose(rooms, Resources(gpu=gpu)) for gpu in (0.0, 0.5)] == [rooms[1], rooms[0]]


def test_workers_that_go_anywhere_leave_hosts_with_a_label_to_others_whoever_joined_first() -> None:
    rooms = [Room("b", 2, labels=("fast",)), Room("a", 1)]
    check_all(rooms, [("trainers/0", Resources()), *([("actors", Resources(node="fast"))] * 2)])
    assert choose(rooms[:1], Resources()) is rooms[0]


def test_cpus_are_shared_only_where_a_host_was_lost_and_gpus_never() -> None:
    rooms = [Room("a", 2, gpus=1, used_cpus=2, used_gpus=1)]
    assert choose(rooms, Resources()) is None
    assert choose(rooms, Resources(), stretch=True) is rooms[0]
    assert choose(rooms, Resources(gpu=1), stretch=True) is None


def test_workers_move_from_where_cpus_are_shared_as_far_as_there_is_room() -> None:
    crowded, idle = Room("a", 2, used_cpus=5), Room("b", 2)
    placed = [("a", Resources())] * 5
    assert relief([crowded], placed) == []
    assert relief([crowded, idle], placed) == [0, 1]
    assert relief([crowded, Room("b", 9)], placed) == [0, 1, 2]  # no more than needed
    assert relief([crowded, idle], [("a", Resources(node="a")), *placed[1:]]) == [1, 2]
    assert (crowded.used_cpus, idle.used_cpus) == (5, 0)  # nothing is taken before they have left


def test_fractions_of_a_gpu_add_up() -> None:
    room = Room("a", 8, gpus=1)
    for _ in range(4):
        assert choose([room], Resources(gpu=0.25)) is room
        room.take(Resources(gpu=0.25))
    assert choose([room], Resources(gpu=0.25)) is None
    room.give_back(Resources(gpu=0.25))
    assert choose([room], Resources(gpu=0.25)) is room


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (Resources(cpu=5), "5 CPUs"),
        (Resources(gpu=2), "2 GPUs"),
        (Resources(memory_mb=999), "999 MB"),
        (Resources(node="gpu*"), "a host named gpu"),
    ],
)
def test_what_can_never_be_placed_is_said_with_what_there_is(wanted: Resources, named: str) -> None:
    with pytest.raises(NoRoom, match=r"actors/3 can never be placed") as caught:
        check([Room("a", 4, memory_mb=500)], wanted, "actors/3")
    assert named in str(caught.value)
    assert "a: 4 CPUs" in str(caught.value)


def test_too_many_workers_together_are_refused() -> None:
    wanted = [(f"actors/{index}", Resources()) for index in range(4)]
    check_all([Room("a", 2), Room("b", 2)], wanted)
    with pytest.raises(NoRoom, match="4 workers want 4 CPUs, and 2 hosts offer 3"):
        check_all([Room("a", 2), Room("b", 1)], wanted)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Resources(gpu=1), "no host that is left offers 1 GPU"),
        (Resources(node="fast*"), "no host that is left is named fast*"),
        (Resources(memory_mb=600), "no host that is left has room for 1 CPU, 600 MB"),
        (Resources(memory_mb=400), ""),
    ],
)
def test_who_waits_although_there_are_hosts_is_told_what_they_lack(wanted: Resources, why: str) -> None:
    rooms = [Room("a", 2, memory_mb=1000, used_mb=500, used_cpus=2)]
    assert lacking(rooms, wanted, stretch=True) == why
    assert lacking([], wanted) == ""


def test_what_workers_wait_for_is_told_once_and_after_a_while() -> None:
    waits, trainer, actors = Waits(), ("trainers", 0), [("actors", 0), ("actors", 1)]
    assert waits.late([trainer], 0.0) == []
    assert waits.late([trainer, *actors], WAIT_SECONDS) == []
    assert waits.late([trainer, *actors], WAIT_SECONDS + 1.0) == [trainer]
    assert waits.late([trainer, *actors], 2 * WAIT_SECONDS + 1.0) == [trainer, *actors]
    told = waits.tell({trainer: "no GPU", **dict.fromkeys(actors, "no room")})
    assert told == ["trainers/0 waits: no GPU", "actors/0 and 1 more wait: no room"]
    assert waits.late([trainer, *actors], 99.0) == []
    assert waits.late([], 100.0) == []  # it has a place
    assert waits.late([trainer], 101.0) == []
    assert waits.late([trainer], 200.0) == [trainer]
