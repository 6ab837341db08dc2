"""GRU and LSTM over time with resets, and their gradients by hand.

Autograd through a loop of cells adds up the gradient of the recurrent weights once per row, which costs more than all
the rest; here it is one product over all rows. Rows of which `keep` is 0 begin with an empty memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class GruPass(torch.autograd.Function):
    """Cho et al. 2014, as torch.nn.GRU computes it: reset and update gates, then the new content n.

    h' = n + update * (h - n),   n = tanh(inputs_n + reset * (weight_n h + bias_n))
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, state: Tensor, keep: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Input projections [T, B, 3H], state [B, H], keep [T, B, 1], weight [3H, H], bias [3H] -> [T, B, H]."""
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
            torch.addcmul(inputs_n, reset, own, out=content_t).tanh_()
            hidden = torch.lerp(content_t, before_t, update, out=output)
        ctx.save_for_backward(before, gates, candidate, content, keep, weight)
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, Tensor, Tensor]:
        before, gates, candidate, content, keep, weight = ctx.saved_tensors
        size = before.shape[2]
        reset, update = gates.chunk(2, 2)
        # What each row's gradient of the output is multiplied by, for all rows at once.
        to_content = (1.0 - update) * (1.0 - content.square())
        to_update = (before - content) * update * (1.0 - update)
        to_reset = candidate * reset * (1.0 - reset)
        inputs, projected = gates.new_empty(2, *gates.shape[:2], 3 * size)  # the second of weight h + bias
        carried = torch.zeros_like(before[0])
        rows = zip(
            *(part.unbind(0) for part in (gradient, to_content, to_update, to_reset, reset, update, keep, projected)),
            *(part.unbind(0) for part in (inputs[..., 2 * size :], *projected.chunk(3, 2))),
            strict=True,
        )
        for (
            output,
            to_n,
            to_u,
            to_r,
            reset_t,
            update_t,
            keep_t,
            projected_t,
            d_content,
            d_reset,
            d_update,
            d_own,
        ) in reversed(list(rows)):
            total = output + carried
            torch.mul(total, to_n, out=d_content)
            torch.mul(d_content, to_r, out=d_reset)
            torch.mul(total, to_u, out=d_update)
            torch.mul(d_content, reset_t, out=d_own)
            carried = torch.addmm(total.mul_(update_t), projected_t, weight).mul_(keep_t)
        inputs[..., : 2 * size] = projected[..., : 2 * size]
        flat = projected.flatten(0, 1)
        return inputs, carried, None, flat.t() @ before.flatten(0, 1), flat.sum(0)


class LstmPass(torch.autograd.Function):
    """Hochreiter & Schmidhuber 1997 with forget gates, as torch.nn.LSTM computes it.

    c' = forget * c + input * content,   h' = output * tanh(c')
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, state: Tensor, keep: Tensor, weight: Tensor) -> Tensor:
        """Input projections [T, B, 4H], state [B, 2H] (h, c), keep [T, B, 1], weight [4H, H] -> outputs [T, B, H].
        Unlike torch's, the content comes last: the three sigmoids are one call."""
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
            content.tanh_()
            cell = torch.addcmul(entry * content, forget, cell_t)
            torch.tanh(cell, out=squashed_t)
            hidden = torch.mul(output, squashed_t, out=out)
        ctx.save_for_backward(before, cells, gates, squashed, keep, weight)
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, Tensor]:
        before, cells, gates, squashed, keep, weight = ctx.saved_tensors
        entry, forget, output, content = gates.chunk(4, 2)
        # What the gradients of c' and h' are multiplied by, for all rows at once.
        to_cell = output * (1.0 - squashed.square())
        to_entry = content * entry * (1.0 - entry)
        to_forget = cells * forget * (1.0 - forget)
        to_output = squashed * output * (1.0 - output)
        to_content = entry * (1.0 - content.square())
        inputs = torch.empty_like(gates)
        carried, cell = before.new_zeros(2, *before.shape[1:])
        factors = (to_cell, to_entry, to_forget, to_output, to_content, forget, keep)
        rows = zip(*(part.unbind(0) for part in (gradient, *factors, inputs, *inputs.chunk(4, 2))), strict=True)
        for (
            one,
            to_c,
            to_i,
            to_f,
            to_o,
            to_g,
            forget_t,
            keep_t,
            inputs_t,
            d_entry,
            d_forget,
            d_output,
            d_content,
        ) in reversed(list(rows)):
            total = one + carried
            cell = torch.addcmul(cell, total, to_c)
            torch.mul(cell, to_i, out=d_entry)
            torch.mul(cell, to_f, out=d_forget)
            torch.mul(total, to_o, out=d_output)
            torch.mul(cell, to_g, out=d_content)
            carried = torch.mm(inputs_t, weight).mul_(keep_t)
            cell = cell.mul_(forget_t).mul_(keep_t)
        state = torch.cat((carried, cell), dim=1)
        return inputs, state, None, inputs.flatten(0, 1).t() @ before.flatten(0, 1)


gru_pass: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor] = GruPass.apply
lstm_pass: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = LstmPass.apply
