"""Adam on a flat vector against torch's own optimizer."""

from __future__ import annotations

import pytest
import torch

from srl.algorithms.training.learner import FlatAdam


@pytest.mark.parametrize("given", [{}, {"eps": 1e-5}], ids=["default", "eps"])
def test_adam_steps_equal_those_of_torch(given: dict[str, float]) -> None:
    start = torch.randn(1000, dtype=torch.float64)
    mine, theirs = start.clone(), start.clone().requires_grad_()
    adam = FlatAdam(mine, **given)
    reference = torch.optim.Adam([theirs], lr=0.01, **given)
    for i in range(10):
        gradients = torch.randn(1000, dtype=torch.float64)
        learning_rate = 0.01 / (i + 1)
        adam.step(gradients.clone(), learning_rate)
        reference.param_groups[0]["lr"] = learning_rate
        theirs.grad = gradients
        reference.step()
    assert adam.num_steps == 10
    torch.testing.assert_close(mine, theirs.detach())
