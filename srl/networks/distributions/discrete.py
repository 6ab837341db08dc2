"""Action distributions: sampling, log-probabilities, and their gradients in closed form.

A network puts out the parameters of one distribution for each row of a batch, [B, n]. The arithmetic runs on the
transpose [n, B], because a reduction over few parameters is fast only if the batch is the contiguous axis; networks
that care return a transposed view. Gradients are written out by hand: an update of a small network is bound by the
number of torch calls, and autograd makes four of each of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

FORBIDDEN = -1e9
"""Logit of a choice that is masked: its probability is exactly 0 in float32, and nothing becomes NaN, not even where
all choices are forbidden, as in rows in which nobody acts."""
SMALLEST = 1e-38
"""Of the uniform numbers behind a draw: log(0) would make a forbidden choice as likely as an allowed one."""


class Evaluation(NamedTuple):
    log_prob: Tensor  # [B]
    entropy: Tensor  # [B]
    saved: tuple[Any, ...]
    """What `gradient` needs."""


class Distribution(Protocol):
    @property
    def num_parameters(self) -> int:
        """n: what a network puts out for each row."""

    @property
    def num_free(self) -> int:
        """So many of them, the last ones, may be the same for every observation (a free log-std)."""

    @property
    def num_choices(self) -> int:
        """How long a mask is; 0 if there is nothing to forbid."""

    @property
    def action_size(self) -> int:
        """Numbers in an action."""

    @property
    def start(self) -> tuple[float, ...]:
        """The parameters [n] of a network that has learned nothing: biases."""

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        """The parameters, with no probability left for choices that are not `allowed` [B, num_choices]."""

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Any:
        """[B, n] -> actions [B, ...] as the space stores them. The generator lives where the parameters do."""

    def mode(self, parameters: Tensor) -> Any: ...

    def log_prob(self, parameters: Tensor, action: Any) -> Tensor:
        """[B, n], [B, ...] -> [B]"""

    def evaluate(self, parameters: Tensor, action: Any) -> Evaluation: ...

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        """Gradient [B, n] with respect to the parameters, given that with respect to each row's log-probability [B]
        and that with respect to each row's entropy (the same for all rows)."""


def gumbel_argmax(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from softmax(logits) along axis 0, [n, B] -> [B]: argmax of logits + Gumbel noise."""
    uniform = room_for(logits).uniform_(SMALLEST, 1.0, generator=generator)
    return argmax(logits - uniform.log_().neg_().log_())


def room_for(tensor: Tensor) -> Tensor:
    """On the tensor's device, filled in the same order whatever the tensor's strides."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def argmax(logits: Tensor) -> Tensor:
    """[n, B] -> [B]. `max` is vectorized along B, `argmax` is not and takes seven times as long."""
    return logits.max(0).indices


@dataclass(frozen=True)
class Categorical:
    """One of `num_parameters` choices; the parameters are logits."""

    num_parameters: int
    num_free: int = 0
    action_size: int = 1

    @property
    def num_choices(self) -> int:
        return self.num_parameters

    @property
    def start(self) -> tuple[float, ...]:
        return (0.0,) * self.num_parameters

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        return parameters.masked_fill(~allowed, FORBIDDEN)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return gumbel_argmax(parameters.t(), generator)

    def mode(self, parameters: Tensor) -> Tensor:
        return argmax(parameters.t())

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return torch.log_softmax(parameters.t(), 0).gather(0, action[None])[0]

    def evaluate(self, parameters: Tensor, action: Tensor) -> Evaluation:
        log_probs = torch.log_softmax(parameters.t(), 0)  # [n, B]
        probs = log_probs.exp()
        index = action[None]
        # -p log p, and 0 for a choice that the network masked with a logit of -inf.
        surprise = torch.special.entr(probs)
        entropy = surprise.sum(0)
        return Evaluation(log_probs.gather(0, index)[0], entropy, (surprise, probs, index, entropy))

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        # d log p(a) / d logit_k = [k = a] - p_k;   d H / d logit_k = -p_k (log p_k + H)
        surprise, probs, index, entropies = evaluation.saved
        factor = torch.add(log_prob, entropies, alpha=entropy)
        gradient = torch.mul(surprise, entropy).addcmul_(probs, factor, value=-1.0)
        return gradient.scatter_add_(0, index, log_prob[None]).t()


@dataclass(frozen=True)
class MultiCategorical:
    """Several independent choices at once; the parameters are the logits of all, one after the other."""

    nvec: tuple[int, ...]
    num_free: int = 0

    @property
    def num_parameters(self) -> int:
        return sum(self.nvec)

    @property
    def num_choices(self) -> int:
        return sum(self.nvec)

    @property
    def action_size(self) -> int:
        return len(self.nvec)

    @property
    def start(self) -> tuple[float, ...]:
        return (0.0,) * self.num_parameters

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        return parameters.masked_fill(~allowed, FORBIDDEN)

    def _split(self, parameters: Tensor) -> tuple[Tensor, ...]:
        return torch.split(parameters, list(self.nvec), dim=1)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return torch.stack([gumbel_argmax(part.t(), generator) for part in self._split(parameters)], dim=1)

    def mode(self, parameters: Tensor) -> Tensor:
        return torch.stack([argmax(part.t()) for part in self._split(parameters)], dim=1)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return self.evaluate(parameters, action).log_prob

    def evaluate(self, parameters: Tensor, action: Tensor) -> Evaluation:
        parts = [
            Categorical(n).evaluate(part, action[:, i])
            for i, (n, part) in enumerate(zip(self.nvec, self._split(parameters), strict=True))
        ]
        log_prob = torch.stack([part.log_prob for part in parts]).sum(0)
        entropy = torch.stack([part.entropy for part in parts]).sum(0)
        return Evaluation(log_prob, entropy, tuple(tensor for part in parts for tensor in part.saved))

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        grads = []
        for i, n in enumerate(self.nvec):
            saved = evaluation.saved[4 * i : 4 * i + 4]
            part = Evaluation(evaluation.log_prob, saved[3], saved)
            grads.append(Categorical(n).gradient(part, log_prob, entropy).t())
        return torch.cat(grads).t()
