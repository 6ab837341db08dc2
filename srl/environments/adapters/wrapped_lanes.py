"""Base class of lanes that change what other lanes return."""

from __future__ import annotations

from srl.api.control import OptionValue
from srl.api.lanes import Lanes
from srl.base.state import State
from srl.base.tree import Array


class WrappedLanes(Lanes):
    """Lanes that delegate everything but `reset` and `step` to `inner`."""

    def __init__(self, inner: Lanes) -> None:
        self.inner = inner

    def set_option(self, name: str, value: OptionValue) -> None:
        self.inner.set_option(name, value)

    def state(self) -> State:
        return self.inner.state()

    def restore(self, state: State) -> None:
        self.inner.restore(state)

    def render(self) -> Array:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()
