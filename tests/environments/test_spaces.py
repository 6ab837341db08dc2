import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from support.trees import leaf

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, array_spec
from srl.base.tree import ArraySpec
from srl.environments.conversion import action_decoder, lane_decoder, observation_encoder, observation_leaves
from srl.environments.spaces import from_gymnasium


@pytest.mark.parametrize(
    ("native", "ours"),
    [
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), Box((4, 84, 84), "uint8", 0.0, 255.0)),
        (spaces.Box(-np.inf, np.inf, (3,), np.float64), Box((3,), "float32")),
        (spaces.Box(0, 1, (2,), np.bool_), Box((2,), "uint8", 0.0, 1.0)),
        (spaces.Box(np.array([0, -2]), np.array([1, 2]), dtype=np.int32), Box((2,), "int32", (0.0, -2.0), (1.0, 2.0))),
        (spaces.Discrete(4, start=7), Discrete(4, start=7)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), MultiDiscrete((2, 3, 4, 5), native_shape=(2, 2))),
        (spaces.MultiBinary((2, 2)), MultiDiscrete((2, 2, 2, 2), native_shape=(2, 2), native_dtype="int8")),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))), Dict({"0": Discrete(2), "1": Discrete(3)}, True)),
        (spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2))), Dict({"a": Dict({"b": Discrete(2)})})),
    ],
)
def test_every_supported_observation_space_is_converted(native, ours):
    assert from_gymnasium(native, "observation") == ours


def test_integer_box_actions_are_real_numbers_to_a_policy_and_rounded_for_the_environment():
    space = spaces.Box(0, 10, (2,), np.int32)
    assert array_spec(from_gymnasium(space, "action")) == ArraySpec((2,), "float32")
    decoded = action_decoder(from_gymnasium(space, "action"))(np.array([[3.6, 12.0]], np.float32))
    assert decoded.dtype == np.int32
    assert decoded.tolist() == [[4, 10]]


@pytest.mark.parametrize("role", ["observation", "action"])
def test_an_unsupported_space_is_refused_with_the_supported_ones(role):
    with pytest.raises(ValueError, match=rf"{role} space Text.* supported are Box, Discrete, MultiDiscrete"):
        from_gymnasium(spaces.Text(3), role)


def test_composed_actions_become_native_ones_for_all_lanes_or_one_by_one():
    native = spaces.Dict(
        aim=spaces.Box(-1.0, 1.0, (2,)), key=spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiBinary(2)))
    )
    assert from_gymnasium(native, "action") == Dict(
        {
            "aim": Box((2,), "float32", -1.0, 1.0),
            "key": Dict({"0": Discrete(3, start=5), "1": MultiDiscrete((2, 2), native_dtype="int8")}, is_tuple=True),
        }
    )
    ours = {
        "aim": np.array([[0.5, 9.0], [-9.0, 0.0]], np.float32),
        "key": {"0": np.array([0, 2]), "1": np.array([[0, 1], [1, 1]])},
    }
    space = from_gymnasium(native, "action")
    batch = action_decoder(space)(ours)
    np.testing.assert_array_equal(batch["aim"], [[0.5, 1.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(batch["key"][0], [5, 7])
    for lane, action in enumerate(lane_decoder(space)(ours)):
        assert native.contains(action), action
        assert action["key"][0] == [5, 7][lane]


def test_a_key_that_would_be_a_path_is_refused():
    with pytest.raises(ValueError, match="'left/camera'"):
        from_gymnasium(spaces.Dict({"left/camera": spaces.Discrete(2)}), "observation")


def test_single_and_batched_observations_become_the_same_arrays():
    space = spaces.Dict(
        {"z": spaces.Discrete(3, start=2), "a": spaces.Tuple((spaces.Box(-1, 1, (2, 2)), spaces.MultiDiscrete([3, 3])))}
    )
    batch = batch_space(space, 5).sample()
    ours = from_gymnasium(space, "observation")
    encode = observation_encoder(ours)
    together = encode(batch, 5)
    third = encode({"z": batch["z"][3], "a": (batch["a"][0][3], batch["a"][1][3])})
    assert leaf(together, "z")[3] == third["z"] == batch["z"][3] - 2
    assert (leaf(together, "a", "0")[3] == leaf(third, "a", "0")).all()
    assert (leaf(together, "a", "1")[3] == leaf(third, "a", "1")).all()
    assert [part.path for part in observation_leaves(ours)] == ["a/0", "a/1", "z"]


def test_an_array_that_fits_is_not_copied():
    batch = np.zeros((8, 4), np.float32)
    assert observation_encoder(Box((4,)))(batch, 8) is batch
    actions = np.zeros(8, np.int64)
    assert action_decoder(Discrete(2))(actions) is actions


@pytest.mark.parametrize(
    ("value", "complaint"),
    [(np.zeros(3, np.float32), "shape"), (np.zeros(4, np.complex64), "dtype"), (np.array(["a"] * 4), "dtype")],
)
def test_an_observation_outside_its_space_is_refused(value, complaint):
    with pytest.raises(ValueError, match=complaint):
        observation_encoder(Box((4,)))(value)


def test_box_actions_are_clipped_each_to_its_own_bounds():
    space = Box((2,), low=(-1.0, 0.0), high=(1.0, np.inf))
    assert action_decoder(space)(np.array([[-3.0, -3.0], [3.0, 3.0]], np.float32)).tolist() == [[-1.0, 0.0], [1.0, 3.0]]


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (Discrete(2), "Discrete(2)"),
        (Discrete(2, start=1), "Discrete(2, start=1)"),
        (Box((4,)), "Box((4,))"),
        (Box((2,), low=-1.0, high=1.0), "Box((2,), low=-1.0, high=1.0)"),
        (Box((5,), low=(0.0, -2.0, 0.0, 0.0, 1.0)), "Box((5,), low=-2.0 to 1.0)"),
        (Dict({"a": MultiDiscrete((2, 3)), "b": Box(())}), "Dict(a: MultiDiscrete((2, 3)), b: Box(()))"),
        (Dict({"0": Discrete(2)}, is_tuple=True), "Tuple(Discrete(2))"),
    ],
)
def test_messages_show_a_space_without_its_defaults(space, text):
    assert str(space) == text
