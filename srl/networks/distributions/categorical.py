"""Discrete actions: one choice, or several independent ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from srl.networks.distributions.distribution import Evaluation, empty_like

FORBIDDEN = -1e9
"""Logit of a masked choice. It makes the probability exactly 0 in float32 and never produces NaN, even if all choices
are forbidden, as in rows where no lane acts."""
SMALLEST = 1e-38
"""Lower bound of the uniform noise for sampling: log(0) would make a forbidden choice as likely as an allowed one."""


def gumbel_argmax(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Sample indices [B] from softmax(logits) over axis 0 of logits [n, B], as the argmax of logits + Gumbel noise."""
    uniform = empty_like(logits).uniform_(SMALLEST, 1.0, generator=generator)
    return argmax(logits - uniform.log_().neg_().log_())


def argmax(logits: Tensor) -> Tensor:
    """Return the argmax [B] over axis 0. `max` is vectorized along B, which makes it 7x faster than `argmax`."""
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
        # -p log p, which is 0 for a choice that the network masked with a logit of -inf.
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
    """Several independent choices; the parameters are the logits of all of them, concatenated."""

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
        columns = zip(self.nvec, self._split(parameters), action.unbind(1), strict=True)
        parts = [Categorical(n).evaluate(part, column) for n, part, column in columns]
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
