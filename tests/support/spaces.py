"""One Gymnasium space of each kind, in the unusual forms that environments may use."""

import numpy as np
from gymnasium import spaces

SPACES = {
    "numbered from 3": spaces.Discrete(4, start=3),
    "numbered from below zero": spaces.MultiDiscrete([3, 2], start=[-1, 5]),
    "a matrix": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "switches": spaces.MultiBinary((2, 3)),
    "integers": spaces.Box(-2, 2, (3,), np.int32),
    "numbers": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "a tuple": spaces.Tuple((spaces.Discrete(2, start=1), spaces.Box(-1.0, 1.0, (2,), np.float32))),
    "names": spaces.Dict({"what": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))), "n": spaces.Discrete(3)}),
}
