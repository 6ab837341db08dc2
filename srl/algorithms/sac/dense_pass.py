"""The update of SAC by hand, for actors and critics of dense layers, because autograd adds a third to its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.losses import (
    critic_loss,
    policy_loss,
    soft_value,
    squashed_gradients,
    squashed_sample,
    td_target,
)
from srl.algorithms.sac.networks import Actor, Critics, StackedLayers, bounded_log_std, bounded_log_std_slope


class _Layer(NamedTuple):
    """A member's tensors of one layer, looked up once. The gradients are empty if the network does not learn."""

    weight: Tensor  # [in, out]
    bias: Tensor  # [out]
    weight_gradient: Tensor
    bias_gradient: Tensor


class StackPass:
    """Passes through the networks of `StackedLayers` in reused buffers. Members are computed one after the other:
    torch's batched product is slower than one product per member. Gradients of weights are overwritten, not added."""

    def __init__(self, layers: StackedLayers) -> None:
        self._is_tanh = layers.activation == "tanh"
        pairs = list(zip(layers.weights, layers.biases, strict=True))
        self._members = [[_layer(weight, bias, e) for weight, bias in pairs] for e in range(len(layers.weights[0]))]
        self._sizes = [weight.shape[2] for weight in layers.weights]
        self._buffers: dict[int, list[Tensor]] = {}
        self._scratch: dict[int, list[Tensor]] = {}
        self._inputs = torch.empty(0)
        self._kept: list[Tensor] = []

    def forward(self, inputs: Tensor, members: Sequence[int] | None = None) -> Tensor:
        """Map inputs [N, in] to outputs [E, N, out] of all networks or of `members`; valid until the next call."""
        chosen = range(len(self._members)) if members is None else members
        self._inputs, self._kept = inputs, self._rows(self._buffers, len(inputs))
        last = len(self._kept) - 1
        for k, member in enumerate(chosen):
            hidden = inputs
            for i, layer in enumerate(self._members[member]):
                output = self._kept[i][k]
                torch.addmm(layer.bias, hidden, layer.weight, out=output)
                if i < last:
                    hidden = output.tanh_() if self._is_tanh else output.relu_()
        return self._kept[last][: len(chosen)]

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of all parameters, given that of the outputs [E, B, out] for the first B rows of the last
        `forward`."""
        num_rows = gradient.shape[1]
        inputs = self._inputs[:num_rows]
        for k, layers in enumerate(self._members):
            below = [inputs, *(output[k, :num_rows] for output in self._kept[:-1])]
            for i, upstream in self._upstream(k, gradient[k]):
                torch.mm(below[i].t(), upstream, out=layers[i].weight_gradient)
                torch.sum(upstream, 0, out=layers[i].bias_gradient)

    def input_gradient(self, gradient: Tensor, first: int) -> Tensor:
        """Return the gradient [B, in - first] of the inputs from column `first` on. The parameters have no part."""
        found = None
        for k, layers in enumerate(self._members):
            *_, (_, upstream) = self._upstream(k, gradient[k])
            weight = layers[0].weight[first:].t()
            found = torch.mm(upstream, weight) if found is None else found.addmm_(upstream, weight)
        assert found is not None
        return found

    def _upstream(self, k: int, gradient: Tensor) -> Iterable[tuple[int, Tensor]]:
        """Yield the gradient of each layer's sums, from the last layer to the first."""
        num_rows, layers, last = len(gradient), self._members[k], len(self._kept) - 1
        scratch = self._rows(self._scratch, num_rows)
        upstream = gradient
        for i in range(last, -1, -1):
            if i < last:
                upstream = torch.mm(upstream, layers[i + 1].weight.t(), out=scratch[i][0])
                output = self._kept[i][k, :num_rows]
                if self._is_tanh:
                    torch.ops.aten.tanh_backward.grad_input(upstream, output, grad_input=upstream)
                else:
                    torch.ops.aten.threshold_backward.grad_input(upstream, output, 0, grad_input=upstream)
            yield i, upstream

    def _rows(self, buffers: dict[int, list[Tensor]], num_rows: int) -> list[Tensor]:
        """Return buffers [E, N, size] for the outputs of all layers, or [1, N, size] for gradients."""
        if num_rows not in buffers:
            like, members = self._members[0][0].weight, len(self._members) if buffers is self._buffers else 1
            buffers[num_rows] = [like.new_empty(members, num_rows, size) for size in self._sizes]
        return buffers[num_rows]


def _layer(weight: nn.Parameter, bias: nn.Parameter, member: int) -> _Layer:
    none = weight.data.new_empty(0)
    gradients = (none, none)
    if weight.grad is not None and bias.grad is not None:
        gradients = (weight.grad[member], bias.grad[member, 0])
    return _Layer(weight.data[member], bias.data[member, 0], *gradients)


def supports(network: nn.Module, critics: Critics) -> bool:
    """Return whether the networks consist of dense layers whose inputs need no gradient."""
    if not (isinstance(network, Actor) and network.kind == "gaussian"):
        return False
    encoders = [*network.encoder.parameters(), *critics.encoder.parameters()]
    return not encoders and not critics.layers.dropout and not len(critics.layers.gains)


class SACPass:
    """Gradients of SAC's losses (Haarnoja et al. 2018, eq. 5 and 9), equal to those of autograd."""

    def __init__(self, actor: Actor, critics: Critics, target: Critics) -> None:
        self._actor, self._critics, self._target = (StackPass(each.layers) for each in (actor, critics, target))
        self._encode_actor, self._encode = actor.encoder, critics.encoder
        self._features = self._outputs = torch.empty(0)

    def target(
        self,
        batch: Minibatch,
        temperature: Tensor,
        members: Sequence[int] | None,
        noise: Tensor,
        with_actor: bool,
    ) -> Tensor:
        """Return the critics' targets [B]. With `with_actor`, the actor sees the observations too, in the same
        products."""
        num_rows = len(batch.reward)
        after = self._encode_actor(batch.next_observation)
        if with_actor:
            after = torch.cat((self._encode_actor(batch.observation), after))
        outputs = self._actor.forward(after)[0]
        self._outputs = outputs[:num_rows]
        mean, raw = outputs[-num_rows:].chunk(2, dim=1)
        action, log_prob = squashed_sample(mean, bounded_log_std(raw), noise)
        joined = torch.cat((self._encode(batch.next_observation), action), dim=1)
        values = self._target.forward(joined, members)[:, :, 0]
        return td_target(batch.reward, batch.discount, soft_value(values, log_prob, temperature))

    def critic_gradients(self, batch: Minibatch, target: Tensor) -> tuple[Tensor, Tensor]:
        """Write the critics' gradients. Return their loss and the errors [E, B]."""
        self._features = self._encode(batch.observation)
        values = self._critics.forward(torch.cat((self._features, batch.action), dim=1))[:, :, 0]
        loss, errors = critic_loss(values, target, batch.weight), values - target
        self._critics.backward((errors * (batch.weight / len(target)))[:, :, None])
        return loss, errors

    def actor_gradients(self, temperature: Tensor, noise: Tensor, of_lowest: bool) -> tuple[Tensor, Tensor]:
        """Write the actor's gradients, after the `target` of the same batch with the actor. Return its loss and its
        entropy. It maximizes the lowest value of the critics, or their mean."""
        num_rows = len(noise)
        mean, raw = self._outputs.chunk(2, dim=1)
        log_std = bounded_log_std(raw)
        action, log_prob = squashed_sample(mean, log_std, noise)
        values = self._critics.forward(torch.cat((self._features, action), dim=1))[:, :, 0]
        if of_lowest:
            value, lowest = values.min(0)
            gradient = torch.zeros_like(values).scatter_(0, lowest[None], -1.0 / num_rows)
        else:
            value = values.mean(0)
            gradient = torch.full_like(values, -1.0 / values.numel())
        action_gradient = self._critics.input_gradient(gradient[:, :, None], self._features.shape[1])
        by_mean, by_log_std = squashed_gradients(action, log_std, noise, action_gradient, temperature / num_rows)
        by_raw = by_log_std * bounded_log_std_slope(raw)
        self._actor.backward(torch.cat((by_mean, by_raw), dim=1)[None])
        return policy_loss(value, log_prob, temperature), log_prob.mean().neg()
