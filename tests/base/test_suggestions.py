"""The end of error messages about wrong words."""

from srl.base.suggestions import nearest


def test_a_close_word_is_suggested_whatever_its_case_and_dashes() -> None:
    assert nearest("cartpol", ["cartpole", "pong"]) == "; did you mean 'cartpole'?"
    assert nearest("num-minibatchs", ["num_minibatches", "num_epochs"]) == "; did you mean 'num_minibatches'?"
    assert nearest("PONG", ["Pong"]) == "; did you mean 'Pong'?"


def test_the_valid_words_are_listed_when_nothing_is_close() -> None:
    assert nearest("xyz", ["b", "a"]) == "; valid ones: a, b"
    assert nearest("xyz", []) == "; there are none"
    assert nearest("zzz", [f"name{i:02d}" for i in range(25)]).endswith("name19 and 5 more")
