"""Where tensors live: what a device's name means, and the only ways onto a device and back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from srl.base.tree import Array

CPU = torch.device("cpu")
CHOSEN_ALONE = ("cuda", "mps")
"""What `auto` takes, the first that there is; other kinds must be asked for."""


def present_devices() -> list[str]:
    """What torch can use here, `cpu` first. Asks the drivers, so a process that will fork should not."""
    other = torch.accelerator.current_accelerator()
    kinds = dict.fromkeys((*CHOSEN_ALONE, *([other.type] if other is not None else [])))
    modules = {kind: torch.get_device_module(kind) for kind in kinds}
    return ["cpu"] + [
        f"{kind}:{index}"
        for kind, module in modules.items()
        if module.is_available()
        for index in range(module.device_count())
    ]


def resolve_device(name: str, rank: int = 0) -> torch.device:
    """The device that a name means here: `auto`, a kind (`cpu`, `cuda`) or one device of it (`cuda:1`).

    Where the name leaves the choice, rank r of several trainers gets the r-th device, modulo their number.
    """
    if name == "cpu":
        return CPU  # no driver is asked: actors on the CPU leave the accelerator alone
    present = present_devices()
    kinds = [device.partition(":")[0] for device in present]
    wanted = next((kind for kind in CHOSEN_ALONE if kind in kinds), "cpu") if name == "auto" else name
    choice = [device for device, kind in zip(present, kinds, strict=True) if wanted in (device, kind)]
    if not choice:
        raise ValueError(
            f"no device {name!r}; torch {torch.__version__} sees {', '.join(present)} here (or say 'auto')"
        )
    return torch.device(choice[rank % len(choice)])


def place(network: nn.Module, device: torch.device) -> nn.Module:
    """The same network, its parameters and constants on the device."""
    return network.to(device)


def move(array: Array, device: torch.device, *, wait: bool = False) -> Tensor:
    """An array on the device, in its own dtype: images travel as bytes. Unless we `wait`, the copy may be under way
    until something is fetched: leave the array alone until then. On the CPU the memory is shared, but for a read-only
    array: torch knows no such thing."""
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor if device == CPU else tensor.to(device, non_blocking=not wait)


def fetch(tensor: Tensor) -> Tensor:
    """A tensor on the CPU, once it is computed: itself if it lives there."""
    return tensor if tensor.is_cpu else tensor.cpu()
