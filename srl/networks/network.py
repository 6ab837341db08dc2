"""The base class of networks, with the methods that algorithms call in addition to `forward`."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Network(nn.Module):
    """An actor-critic that maps an observation tree [B, ...] to (distribution parameters [B, n], value [B]).

    A network with memory sets `state_size`, and maps (observation, state [B, S]) to (parameters, value, state). Any
    other torch.nn.Module with these inputs and outputs serves as a network without memory. Only some algorithms need
    the methods below.
    """

    state_size: int = 0
    """Size S of each lane's memory; 0 if there is none."""

    def value_head(self) -> tuple[Tensor, Tensor]:
        """Return weight and bias of the value's output layer, for PopArt to rescale. Default: raise ValueError."""
        raise ValueError(
            f"normalize_return 'popart' rescales the layer that outputs the value, and {self._title()} has no method "
            "`value_head` that returns its weight and bias (see docs/howto/policy.md); or use 'running' instead"
        )

    def detach_value(self, detached: bool) -> None:
        """Stop the value's gradient at the layers that the critic shares with the actor, or let it through again, as
        PPG does between its phases. Default: raise ValueError."""
        raise ValueError(
            f"ppg keeps the value's gradient out of the actor's layers between its phases, and {self._title()} has no "
            "method `detach_value(detached)` (see docs/howto/policy.md)"
        )

    def _title(self) -> str:
        return type(self).__name__


class Wrapper(Network):
    """A network that wraps another one, `network`, and delegates to its heads."""

    network: Network

    def value_head(self) -> tuple[Tensor, Tensor]:
        return self.network.value_head()

    def detach_value(self, detached: bool) -> None:
        self.network.detach_value(detached)


class PlainNetwork(Network):
    """Adapter for a torch module that is not a `Network`. It has no memory."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, observation: Any) -> Any:
        return self.module(observation)

    def _title(self) -> str:
        return type(self.module).__name__


def as_network(module: nn.Module) -> Network:
    return module if isinstance(module, Network) else PlainNetwork(module)
