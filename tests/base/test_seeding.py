"""Seeds differ between paths and are the same on every machine."""

from srl.base.seeding import derive, generator


def test_twenty_thousand_paths_have_different_seeds() -> None:
    seeds = {
        derive(seed, role, index, incarnation)
        for seed in (0, 1)
        for role in ("actors", "trainers")
        for index in range(1000)
        for incarnation in range(5)
    }
    assert len(seeds) == 20_000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_paths_that_concatenate_to_the_same_text_differ() -> None:
    assert len({derive(1, "a", 1), derive(1, "a1"), derive(1, "a", "1"), derive(11, "a"), derive(1, 1, "a")}) == 5


def test_seeds_are_the_same_on_every_machine() -> None:
    assert derive(7, "actors", 3, 0) == 4743383485610798040
    assert generator(1, "a").random() == generator(1, "a").random()


def test_seeds_of_neighboring_paths_are_independent() -> None:
    bits = [bin(derive(0, "lanes", i) ^ derive(0, "lanes", i + 1)).count("1") for i in range(1000)]
    assert 30 < sum(bits) / len(bits) < 33
