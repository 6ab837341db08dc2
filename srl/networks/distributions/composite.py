"""Composite actions: Dict and Tuple spaces, possibly nested, with one distribution per part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from srl.base.tree import from_leaves, leaves
from srl.networks.distributions.categorical import Categorical, MultiCategorical
from srl.networks.distributions.distribution import Distribution, Evaluation


@dataclass(frozen=True)
class Composite:
    """Independent distributions, ordered by path. Their parameters are concatenated; those that may not depend on the
    observation (such as a free log-std) come last. Actions are trees or, in training, rows [B, actions] of real numbers
    that concatenate all parts."""

    parts: tuple[tuple[str, Distribution], ...]  # path in the action's tree

    @property
    def num_parameters(self) -> int:
        return sum(part.num_parameters for _, part in self.parts)

    @property
    def num_free(self) -> int:
        return sum(part.num_free for _, part in self.parts)

    @property
    def num_choices(self) -> int:
        return sum(part.num_choices for _, part in self.parts)

    @property
    def action_size(self) -> int:
        return sum(part.action_size for _, part in self.parts)

    @property
    def start(self) -> tuple[float, ...]:
        joined = self._join([torch.tensor([part.start], dtype=torch.float64) for _, part in self.parts])
        return tuple(joined[0].tolist())

    def _split(self, parameters: Tensor) -> Iterator[tuple[str, Distribution, Tensor]]:
        offset, free = 0, self.num_parameters - self.num_free
        for path, part in self.parts:
            own, shared = part.num_parameters - part.num_free, part.num_free
            piece = parameters[:, offset : offset + own]
            if shared:
                piece = torch.cat((piece, parameters[:, free : free + shared]), dim=1)
            yield path, part, piece
            offset, free = offset + own, free + shared

    def _join(self, pieces: list[Tensor]) -> Tensor:
        """Concatenate the parts' parameters: the inverse of `_split`."""
        cuts = [part.num_parameters - part.num_free for _, part in self.parts]
        own = [piece[:, :cut] for piece, cut in zip(pieces, cuts, strict=True)]
        return torch.cat([*own, *(piece[:, cut:] for piece, cut in zip(pieces, cuts, strict=True))], dim=1)

    def _actions(self, action: Any) -> list[Tensor]:
        if isinstance(action, Mapping):
            found = dict(leaves(action))
            return [found[path] for path, _ in self.parts]
        columns = torch.split(action, [part.action_size for _, part in self.parts], 1)
        return [_native(part, column) for (_, part), column in zip(self.parts, columns, strict=True)]

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        masks = torch.split(allowed, [part.num_choices for _, part in self.parts], 1)
        pieces = zip(self._split(parameters), masks, strict=True)
        return self._join([part.mask(piece, mask) for (_, part, piece), mask in pieces])

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Any:
        return from_leaves({path: part.sample(piece, generator) for path, part, piece in self._split(parameters)})

    def mode(self, parameters: Tensor) -> Any:
        return from_leaves({path: part.mode(piece) for path, part, piece in self._split(parameters)})

    def log_prob(self, parameters: Tensor, action: Any) -> Tensor:
        pieces = zip(self._split(parameters), self._actions(action), strict=True)
        return torch.stack([part.log_prob(piece, one) for (_, part, piece), one in pieces]).sum(0)

    def evaluate(self, parameters: Tensor, action: Any) -> Evaluation:
        pieces = zip(self._split(parameters), self._actions(action), strict=True)
        found = [part.evaluate(piece, one) for (_, part, piece), one in pieces]
        log_prob = torch.stack([one.log_prob for one in found]).sum(0)
        entropy = torch.stack([one.entropy for one in found]).sum(0)
        return Evaluation(log_prob, entropy, tuple(found))

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        pieces = zip(self.parts, evaluation.saved, strict=True)
        return self._join([part.gradient(one, log_prob, entropy) for (_, part), one in pieces])


def _native(part: Distribution, columns: Tensor) -> Tensor:
    """Convert columns [B, d] of real numbers to actions with the part's own dtype."""
    if isinstance(part, Categorical):
        return columns[:, 0].long()
    return columns.long() if isinstance(part, MultiCategorical) else columns
