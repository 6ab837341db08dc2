"""The activation functions that replace their input agree with those of torch."""

from __future__ import annotations

import pytest
import torch

from srl.networks.activations import tanh_


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_tanh_replaces_the_elements(dtype: torch.dtype) -> None:
    tensor = torch.cat(
        [torch.linspace(-12, 12, 4001), torch.tensor([0.0, -0.0, 1e-30, 88.0, torch.inf, -torch.inf])]
    ).to(dtype)
    expected = torch.tanh(tensor)
    result = tanh_(tensor)
    assert result is tensor
    torch.testing.assert_close(tensor, expected, rtol=3e-7, atol=1e-7)
    assert torch.isnan(tanh_(torch.tensor([torch.nan]))).all()


def test_tanh_of_a_part_leaves_the_rest_alone() -> None:
    tensor = torch.randn(6, 10)
    expected = tensor.clone()
    expected[:, 3:7] = expected[:, 3:7].tanh()
    tanh_(tensor[:, 3:7])
    torch.testing.assert_close(tensor, expected)


def test_tanh_passes_gradients() -> None:
    leaf = torch.randn(5, requires_grad=True)
    tanh_(leaf * 1.0).sum().backward()
    torch.testing.assert_close(leaf.grad, 1 - leaf.detach().tanh() ** 2)
