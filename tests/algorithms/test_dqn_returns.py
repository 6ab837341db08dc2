from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from srl.algorithms.dqn.returns import CategoricalReturn, MeanReturn, QuantileReturn, ReturnModel, project

REWARD, DISCOUNT = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0])


def test_the_target_of_a_mean_return_is_by_hand() -> None:
    future = torch.tensor([[[4.0]], [[8.0]]])  # [B, D, K]
    assert MeanReturn(huber=True).target(future, REWARD, DISCOUNT).tolist() == [[3.0], [2.0]]


def test_the_target_of_several_branches_is_their_mean() -> None:
    future = torch.tensor([[[4.0], [8.0]], [[1.0], [1.0]]])
    assert MeanReturn(huber=True).target(future, REWARD, DISCOUNT).tolist() == [[4.0], [2.0]]


@pytest.mark.parametrize("huber", [True, False])
@pytest.mark.parametrize("num_branches", [1, 3])
def test_the_gradient_of_a_mean_return_is_that_of_the_loss(huber: bool, num_branches: int) -> None:
    outputs = (3.0 * torch.randn(6, num_branches, 1)).requires_grad_()
    target = torch.randn(6, 1)
    wanted = target[:, None].expand_as(outputs)
    loss = functional.smooth_l1_loss(outputs, wanted, reduction="none")
    loss = loss if huber else 0.5 * (outputs - wanted) ** 2
    _check(MeanReturn(huber), outputs, target, loss.mean(1).sum())


def test_the_gradient_of_logits_is_that_of_the_cross_entropy() -> None:
    outputs = torch.randn(6, 2, 5, requires_grad=True)
    target = torch.softmax(torch.randn(6, 5), -1)
    loss = -(target[:, None] * torch.log_softmax(outputs, -1)).sum(-1)
    _check(CategoricalReturn(5, -1.0, 1.0), outputs, target, loss.mean(1).sum())


@pytest.mark.parametrize("huber", [True, False])
def test_the_gradient_of_quantiles_is_that_of_a_slow_loop(huber: bool) -> None:
    outputs = (2.0 * torch.randn(4, 2, 3)).requires_grad_()
    target = torch.randn(4, 3)
    loss = torch.zeros(())
    for row in range(4):
        for branch in range(2):
            for i in range(3):
                for j in range(3):
                    error = target[row, j] - outputs[row, branch, i]
                    smooth = 0.5 * error**2 if error.abs() <= 1 else error.abs() - 0.5
                    level = abs((2 * i + 1) / 6 - float(error < 0))
                    loss = loss + level * (smooth if huber else error.abs()) / 3 / 2
    _check(QuantileReturn(3, huber), outputs, target, loss)


def _check(model: ReturnModel, outputs: Tensor, target: Tensor, loss: Tensor) -> None:
    (expected,) = torch.autograd.grad(loss, outputs)
    torch.testing.assert_close(model.compare(outputs.detach(), target).gradient, expected)


def test_errors_are_absolute_and_zero_for_equal_returns() -> None:
    outputs = torch.tensor([[[-3.0]], [[2.0]]])
    assert MeanReturn(huber=True).compare(outputs, torch.tensor([[1.0], [2.0]])).error.tolist() == [4.0, 0.0]
    logits = torch.randn(2, 1, 5)
    same = CategoricalReturn(5, 0.0, 1.0).compare(logits, torch.softmax(logits[:, 0], -1))
    torch.testing.assert_close(same.error, torch.zeros(2))
    quantiles = torch.tensor([[[0.0, 2.0]]])
    assert QuantileReturn(2, huber=True).compare(quantiles, torch.tensor([[3.0, 5.0]])).error.tolist() == [3.0]


def test_expectations_are_by_hand() -> None:
    assert MeanReturn(huber=True).expectation(torch.tensor([[[3.0], [4.0]]])).tolist() == [[3.0, 4.0]]
    even = CategoricalReturn(3, 0.0, 4.0).expectation(torch.zeros(1, 2, 3))
    torch.testing.assert_close(even, torch.tensor([[2.0, 2.0]]))
    assert QuantileReturn(2, huber=True).expectation(torch.tensor([[[1.0, 5.0]]])).tolist() == [[3.0]]


def test_the_projection_equals_that_of_a_slow_loop() -> None:
    support = torch.linspace(-2.0, 3.0, 6)
    probabilities = torch.softmax(torch.randn(20, 6), -1)
    reward, discount = 3.0 * torch.randn(20), torch.rand(20)
    reward[0], discount[0] = 1.0, 0.0  # exactly on an atom
    reward[1], discount[1] = 9.0, 0.5  # beyond the support
    expected = torch.zeros(20, 6)
    for row in range(20):
        for i in range(6):
            moved = min(3.0, max(-2.0, float(reward[row] + discount[row] * support[i])))
            place = (moved - -2.0) / 1.0
            low = min(int(place), 4)
            expected[row, low] += probabilities[row, i] * (low + 1 - place)
            expected[row, low + 1] += probabilities[row, i] * (place - low)
    found = project(probabilities, support, reward, discount)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.sum(1), torch.ones(20))
    torch.testing.assert_close(found[0], torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0, 0.0]))
