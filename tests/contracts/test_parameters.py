"""The contract of parameter stores, checked for all implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from srl.api.parameters import ParameterStore
from srl.parameters.host import HostParameterStore


@pytest.fixture(params=[HostParameterStore.create])
def store(request: pytest.FixtureRequest) -> Iterator[ParameterStore]:
    create: Callable[[str], HostParameterStore] = request.param
    made = create("policy")
    yield made
    made.memory.close()
    made.__dict__.clear()  # pytest keeps a reference: free the mapping now


def vector(number: float) -> np.ndarray:
    return np.full(10, number, np.float32)


def test_it_implements_the_contract(store: ParameterStore) -> None:
    assert isinstance(store, ParameterStore)


def test_an_empty_store_has_no_versions(store: ParameterStore) -> None:
    assert store.version == -1
    assert store.pull() is None
    assert store.versions() == {}
    assert store.notes() == {}
    with pytest.raises(KeyError, match="no version has the tag 'best'"):
        store.pull("best")
    with pytest.raises(KeyError, match="no version was published yet"):
        store.tag("best")


def test_the_latest_version_is_pulled_as_a_copy(store: ParameterStore) -> None:
    store.push(0, vector(0))
    store.push(7, vector(7))
    pulled = store.pull()
    assert pulled is not None
    version, parameters = pulled
    assert (version, parameters.tolist()) == (7, [7.0] * 10)
    parameters[...] = 99
    for number in range(8, 20):
        store.push(number, vector(number))
    assert parameters.tolist() == [99.0] * 10
    assert store.version == 19


def test_pull_returns_only_newer_versions(store: ParameterStore) -> None:
    store.push(3, vector(3), tags=("best",))
    assert store.pull(newer_than=3) is None
    assert store.pull("best", newer_than=3) is None
    assert store.pull(newer_than=2) is not None
    assert store.pull("best", newer_than=2) is not None


@pytest.mark.parametrize("version", [5, 4, -1])
def test_versions_only_grow(store: ParameterStore, version: int) -> None:
    store.push(5, vector(5))
    with pytest.raises(ValueError, match=f"version {version} is not newer than 5"):
        store.push(version, vector(0))
    pulled = store.pull()
    assert pulled is not None
    assert pulled[1].tolist() == [5.0] * 10


def test_a_tag_keeps_its_version_until_it_is_moved(store: ParameterStore) -> None:
    store.push(0, vector(0), tags=("first", "best"))
    for version in range(1, 30):
        store.push(version, vector(version))
        if version == 10:
            store.tag("best")
    assert store.versions() == {"first": 0, "best": 10, "latest": 29}
    for tag, version in (("first", 0), ("best", 10)):
        pulled = store.pull(tag)
        assert pulled is not None
        assert (pulled[0], pulled[1].tolist()) == (version, [float(version)] * 10)
    with pytest.raises(ValueError, match="'latest' cannot be set"):
        store.tag("latest")


def test_all_tags_can_be_in_use_and_one_more_is_refused(store: ParameterStore) -> None:
    for version in range(24):
        store.push(version, vector(version), tags=(f"tag-{version}",))
    for version in range(24, 40):
        store.push(version, vector(version))
    for version in range(24):
        pulled = store.pull(f"tag-{version}")
        assert pulled is not None
        assert pulled[1][0] == version
    with pytest.raises(ValueError, match="at most 24 tags"):
        store.tag("one too many")
    assert "one too many" not in store.versions()


def test_notes_are_merged_by_version_and_the_oldest_are_dropped(store: ParameterStore) -> None:
    store.note(1, {"score": 0.5})
    store.note(1, {"games": 3.0})
    assert store.notes() == {1: {"score": 0.5, "games": 3.0}}
    for version in range(2, 400):
        store.note(version, {"score": version / 7, "games": 1e6 + version})
    notes = store.notes()
    assert sorted(notes) == list(range(200, 400))
    assert notes[399] == {"score": 57.0, "games": 1000399.0}


def test_a_tag_can_be_copied_from_another(store: ParameterStore) -> None:
    store.push(1, vector(1))
    store.tag("trial")
    for number in range(2, 20):
        store.push(number, vector(number))
    store.tag("best", "trial")
    store.tag("trial")
    assert store.versions() == {"best": 1, "trial": 19, "latest": 19}
    pulled = store.pull("best")
    assert pulled is not None
    assert pulled[1].tolist() == [1.0] * 10
    with pytest.raises(KeyError, match="no version has the tag 'none'"):
        store.tag("other", "none")
