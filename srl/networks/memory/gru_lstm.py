"""GRU and LSTM with resets, stepped row by row to act and unrolled over sequences to learn; see `recurrent.Memory`.

The memory [B, S] is one vector per lane. Gradients through a sequence are written by hand: autograd through a loop of
cells accumulates the gradient of the recurrent weights row by row, which costs more than everything else; here it is
one product over all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.networks.activations import tanh_


class Gru(nn.Module):
    """Gated recurrent unit (Cho et al. 2014). Its state is its output."""

    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__()
        self.num_features = self.state_size = size
        self.input_weight = _weight(3, num_inputs, size)
        self.weight = _weight(3, size, size)
        self.input_bias = nn.Parameter(torch.zeros(3 * size))
        self.bias = nn.Parameter(torch.zeros(3 * size))

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        gates, content = self._split(functional.linear(features, self.input_weight, self.input_bias))
        more, candidate = self._split(functional.linear(state, self.weight, self.bias))
        reset, update = torch.sigmoid(gates + more).chunk(2, dim=1)
        content = torch.tanh(content + reset * candidate)
        output = content + update * (state - content)
        return output, output

    def _split(self, projected: Tensor) -> tuple[Tensor, ...]:
        return torch.split(projected, [2 * self.num_features, self.num_features], dim=1)

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        inputs = functional.linear(features, self.input_weight, self.input_bias)
        outputs: Tensor = gru_pass(inputs, state, _keep(first), self.weight, self.bias)
        return outputs

    def final_state(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        return self.unroll(features, state, first)[-1]


class Lstm(nn.Module):
    """Long short-term memory (Hochreiter & Schmidhuber 1997). Its state is its output and its cell, concatenated."""

    def __init__(self, num_inputs: int, size: int) -> None:
        super().__init__()
        self.num_features, self.state_size = size, 2 * size
        self.input_weight = _weight(4, num_inputs, size)
        self.weight = _weight(4, size, size)
        bias = torch.zeros(4, size)
        bias[1] = 1.0  # the forget gate starts open
        self.input_bias = nn.Parameter(bias.flatten())
        self.bias = nn.Parameter(torch.zeros(4 * size))

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden, cell = state.chunk(2, dim=1)
        gates = functional.linear(features, self.input_weight, self.input_bias)
        gates = gates.add_(functional.linear(hidden, self.weight, self.bias))
        entry, forget, output, content = gates.chunk(4, dim=1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(entry) * torch.tanh(content)
        hidden = torch.sigmoid(output) * torch.tanh(cell)
        return hidden, torch.cat((hidden, cell), dim=1)

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        inputs = functional.linear(features, self.input_weight, self.input_bias + self.bias)
        outputs: Tensor = lstm_pass(inputs, state, _keep(first), self.weight)
        return outputs

    def final_state(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        inputs = functional.linear(features, self.input_weight, self.input_bias + self.bias)
        rows = _lstm_rows(inputs, state, _keep(first), self.weight)
        return torch.cat((rows.outputs[-1], rows.last_cell), dim=1)


class PairedMemory(nn.Module):
    """Separate memories for actor and critic, each of which sees its half of the features."""

    def __init__(self, actor: Gru | Lstm, critic: Gru | Lstm) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic
        self.num_features = actor.num_features + critic.num_features
        self.state_size = actor.state_size + critic.state_size

    def step(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        actor, critic = self._halves(features, state)
        outputs, states = zip(self.actor.step(*actor), self.critic.step(*critic), strict=True)
        return torch.cat(outputs, dim=1), torch.cat(states, dim=1)

    def unroll(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        actor, critic = self._halves(features, state)
        return torch.cat((self.actor.unroll(*actor, first), self.critic.unroll(*critic, first)), dim=2)

    def final_state(self, features: Tensor, state: Tensor, first: Tensor) -> Tensor:
        actor, critic = self._halves(features, state)
        return torch.cat((self.actor.final_state(*actor, first), self.critic.final_state(*critic, first)), dim=1)

    def _halves(self, features: Tensor, state: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(features.chunk(2, dim=-1), state.chunk(2, dim=1), strict=True)


def build_memory(kind: str, num_inputs: int, size: int) -> Gru | Lstm:
    return Gru(num_inputs, size) if kind == "gru" else Lstm(num_inputs, size)


def _weight(num_gates: int, num_inputs: int, size: int) -> nn.Parameter:
    weight = torch.empty(num_gates, size, num_inputs)
    for gate in weight:
        nn.init.orthogonal_(gate, 1.0)
    return nn.Parameter(weight.flatten(0, 1))


def _keep(first: Tensor) -> Tensor:
    """Return [T, B, 1]: 0 where an episode starts (`first` [T, B]) with an empty memory, 1 where the memory is kept."""
    return first.logical_not().float()[..., None]


class GruPass(torch.autograd.Function):
    """A GRU over time, as torch.nn.GRU computes it: reset and update gates, then the new content n. Rows where `keep`
    is 0 start with an empty memory.

    h' = n + update * (h - n),   n = tanh(inputs_n + reset * (weight_n h + bias_n))
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, state: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return [T, B, H] for projected inputs [T, B, 3H], state [B, H], keep [T, B, 1], weight [3H, H], bias [3H]."""
        num_rows, num_lanes, size = inputs.shape[0], *state.shape
        before, candidate, content, outputs = inputs.new_empty(4, num_rows, num_lanes, size).unbind(0)
        gates = inputs.new_empty(num_rows, num_lanes, 2 * size)
        transposed, hidden = weight.t(), state
        rows = zip(
            *(part.unbind(0) for part in (*torch.split(inputs, [2 * size, size], 2), *gates.chunk(2, 2))),
            *(part.unbind(0) for part in (keep, before, gates, candidate, content, outputs)),
            strict=True,
        )
        for inputs_t, inputs_n, reset, update, keep_t, before_t, gates_t, candidate_t, content_t, output in rows:
            torch.mul(hidden, keep_t, out=before_t)
            projected, own = torch.split(torch.addmm(bias, before_t, transposed), [2 * size, size], 1)
            torch.add(inputs_t, projected, out=gates_t).sigmoid_()
            candidate_t.copy_(own)
            tanh_(torch.addcmul(inputs_n, reset, own, out=content_t))
            hidden = torch.lerp(content_t, before_t, update, out=output)
        ctx.save_for_backward(before, gates, candidate, content, keep, weight)
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, Tensor, Tensor]:
        before, gates, candidate, content, keep, weight = ctx.saved_tensors
        size = before.shape[2]
        reset, update = gates.chunk(2, 2)
        # Factors that multiply each row's output gradient, for all rows at once.
        to_content = (1.0 - update) * (1.0 - content.square())
        to_update = (before - content) * update * (1.0 - update)
        to_reset = candidate * reset * (1.0 - reset)
        inputs, projected = gates.new_empty(2, *gates.shape[:2], 3 * size)  # the second: of weight h + bias
        carried = torch.zeros_like(before[0])
        rows = zip(
            *(part.unbind(0) for part in (gradient, to_content, to_update, to_reset, reset, update, keep, projected)),
            *(part.unbind(0) for part in (inputs[..., 2 * size :], *projected.chunk(3, 2))),
            strict=True,
        )
        backwards = reversed(list(rows))
        for one, to_n, to_u, to_r, reset_t, update_t, keep_t, projected_t, d_n, d_r, d_u, d_own in backwards:
            total = one + carried
            torch.mul(total, to_n, out=d_n)
            torch.mul(d_n, to_r, out=d_r)
            torch.mul(total, to_u, out=d_u)
            torch.mul(d_n, reset_t, out=d_own)
            carried = torch.addmm(total.mul_(update_t), projected_t, weight).mul_(keep_t)
        inputs[..., : 2 * size] = projected[..., : 2 * size]
        flat = projected.flatten(0, 1)
        return inputs, carried, None, flat.t() @ before.flatten(0, 1), flat.sum(0)


class LstmRows(NamedTuple):
    """What an LSTM computes for a sequence, [T, B, ...] but for the last cell [B, H]."""

    before: Tensor  # output of the row before, after resets
    cells: Tensor  # cell of the row before, after resets
    gates: Tensor  # input, forget, output, content
    squashed: Tensor  # tanh of the cell
    outputs: Tensor
    last_cell: Tensor


def _lstm_rows(inputs: Tensor, state: Tensor, keep: Tensor, weight: Tensor) -> LstmRows:
    num_rows, num_lanes, size = inputs.shape[0], state.shape[0], state.shape[1] // 2
    before, cells, squashed, outputs = inputs.new_empty(4, num_rows, num_lanes, size).unbind(0)
    gates = inputs.new_empty(num_rows, num_lanes, 4 * size)  # input, forget, output, content
    transposed = weight.t()
    hidden, cell = state.chunk(2, 1)
    rows = zip(
        *(part.unbind(0) for part in (inputs, keep, gates, gates[..., : 3 * size], *gates.chunk(4, 2))),
        *(part.unbind(0) for part in (before, cells, squashed, outputs)),
        strict=True,
    )
    for inputs_t, keep_t, gates_t, soft, entry, forget, output, content, before_t, cell_t, squashed_t, out in rows:
        torch.mul(hidden, keep_t, out=before_t)
        torch.mul(cell, keep_t, out=cell_t)
        torch.addmm(inputs_t, before_t, transposed, out=gates_t)
        soft.sigmoid_()
        tanh_(content)
        cell = torch.addcmul(entry * content, forget, cell_t)
        tanh_(squashed_t.copy_(cell))
        hidden = torch.mul(output, squashed_t, out=out)
    return LstmRows(before, cells, gates, squashed, outputs, cell)


class LstmPass(torch.autograd.Function):
    """An LSTM over time with forget gates, as torch.nn.LSTM computes it. Rows where `keep` is 0 start with an empty
    memory.

    c' = forget * c + input * content,   h' = output * tanh(c')
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, state: Tensor, keep: Tensor, weight: Tensor) -> Tensor:
        """Return [T, B, H] for projected inputs [T, B, 4H], state [B, 2H] (h, c), keep [T, B, 1], weight [4H,
        H]. Unlike in torch, the content comes last, so that the three sigmoids are one call."""
        rows = _lstm_rows(inputs, state, keep, weight)
        ctx.save_for_backward(rows.before, rows.cells, rows.gates, rows.squashed, keep, weight)
        return rows.outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        before, cells, gates, squashed, keep, weight = ctx.saved_tensors
        entry, forget, output, content = gates.chunk(4, 2)
        # Factors that multiply the gradients of c' and h', for all rows at once.
        to_cell = output * (1.0 - squashed.square())
        to_entry = content * entry * (1.0 - entry)
        to_forget = cells * forget * (1.0 - forget)
        to_output = squashed * output * (1.0 - output)
        to_content = entry * (1.0 - content.square())
        inputs = torch.empty_like(gates)
        carried, cell = before.new_zeros(2, *before.shape[1:])
        factors = (to_cell, to_entry, to_forget, to_output, to_content, forget, keep)
        rows = zip(*(part.unbind(0) for part in (gradient, *factors, inputs, *inputs.chunk(4, 2))), strict=True)
        backwards = reversed(list(rows))
        for one, to_c, to_i, to_f, to_o, to_g, forget_t, keep_t, inputs_t, d_i, d_f, d_o, d_g in backwards:
            total = one + carried
            cell = torch.addcmul(cell, total, to_c)
            torch.mul(cell, to_i, out=d_i)
            torch.mul(cell, to_f, out=d_f)
            torch.mul(total, to_o, out=d_o)
            torch.mul(cell, to_g, out=d_g)
            carried = torch.mm(inputs_t, weight).mul_(keep_t)
            cell = cell.mul_(forget_t).mul_(keep_t)
        state = torch.cat((carried, cell), dim=1)
        return inputs, state, None, inputs.flatten(0, 1).t() @ before.flatten(0, 1)


gru_pass: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] = GruPass.apply
lstm_pass: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = LstmPass.apply
