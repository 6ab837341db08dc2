"""A simulated accelerator, for machines without one: tensors are marked as stored on it, and operations that no
accelerator allows raise an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from srl.base.tree import Array

READS = ("numpy", "tolist", "item", "__float__", "__int__", "__bool__", "__array__")
IS_CPU = Tensor.is_cpu.__get__  # type: ignore[attr-defined]


class ImplicitCopy(AssertionError):
    """Data was copied between the devices, or tensors of both were combined, without
    `srl.algorithms.training.devices`."""


class FarDevice:
    """The simulated device, called "far". It marks storages, so that views and `tensor.data = ...` stay on their
    device. The CPU computes, so results equal those of the CPU bit for bit. A tensor is far if it was moved there, was
    computed from far tensors, or was created with an explicit `device`."""

    def __init__(self) -> None:
        self._far: dict[int, Any] = {}  # keeps the storages alive, so that no address is reused
        self._is_open = False
        self.moved: list[tuple[tuple[int, ...], str]] = []

    def holds(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._far

    def mark(self, tensors: object) -> None:
        for tensor in tree_leaves(tensors):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._far[storage._cdata] = storage

    def check(self, what: object, tensors: list[Tensor]) -> bool:
        """Return whether the tensors are far. Raises ImplicitCopy if only some of them are."""
        far = [self.holds(tensor) for tensor in tensors]
        if any(far) and not all(far) and not self._is_open:
            raise ImplicitCopy(f"{what} mixes devices: {[list(tensor.shape) for tensor in tensors]}, far: {far}")
        return any(far)

    def check_read(self, what: object, tensor: Tensor) -> None:
        if self.holds(tensor) and not self._is_open:
            raise ImplicitCopy(f"{what} reads a tensor of shape {list(tensor.shape)} on the far device")

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self._is_open = True
        yield
        self._is_open = False

    # Replacements of the functions of srl.algorithms.training.devices:

    def place(self, network: nn.Module, device: torch.device) -> nn.Module:
        self.mark([*network.parameters(), *network.buffers()])
        return network

    def move(self, array: Array, device: torch.device, *, wait: bool = False) -> Tensor:
        self.moved.append((array.shape, array.dtype.name))
        tensor = torch.from_numpy(array.copy())
        self.mark(tensor)
        return tensor

    def fetch(self, tensor: Tensor) -> Tensor:
        if not self.holds(tensor):
            raise ImplicitCopy(f"expected a far tensor, found one of shape {list(tensor.shape)} on the CPU")
        with self._opened():
            return torch.from_numpy(tensor.numpy().copy())


class _Operations(TorchDispatchMode):
    def __init__(self, device: FarDevice) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        is_far = self._device.check(func, tensors)
        if func is torch.ops.aten._local_scalar_dense.default:
            self._device.check_read(func, tensors[0])
        result = func(*args, **(kwargs or {}))
        if is_far:
            self._device.mark(result)
        return result


class _Calls(TorchFunctionMode):
    def __init__(self, device: FarDevice) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in READS:
            self._device.check_read(func, args[0])
        if func == IS_CPU and self._device.holds(args[0]):
            return False
        result = func(*args, **(kwargs or {}))
        if (kwargs or {}).get("device") is not None:
            self._device.mark(result)
        return result


class AcceleratorPaths(TorchFunctionMode):
    """Within this context, code takes the paths that it takes on an accelerator, though all tensors are on the CPU. Its
    results are those to compare with the results on the far device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return False if func == IS_CPU else func(*args, **(kwargs or {}))


@contextmanager
def far_device() -> Iterator[FarDevice]:
    """Within this context, policies and trainers are built and used on the far device."""
    device = FarDevice()
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for module in (
            "ppo.ppg_phase",
            "ppo.estimates",
            "training.learner",
            "training.normalizers",
            "ppo.batch",
            "ppo.trainer",
            "ppo.sequences",
            "torch_policy",
        ):
            for name in ("place", "move", "fetch"):
                patch.setattr(f"srl.algorithms.{module}.{name}", getattr(device, name), raising=False)
        stack.enter_context(_Operations(device))
        stack.enter_context(_Calls(device))
        yield device
