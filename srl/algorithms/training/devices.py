"""Devices: their names, and the only functions that copy to a device and back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from srl.base.tree import Array

CPU = torch.device("cpu")
AUTOMATIC = ("cuda", "mps")  # kinds that `auto` takes, the first available one; others must be named


def available_devices() -> list[str]:
    """Devices that torch can use here, `cpu` first. It asks the drivers, so a process that will fork must not
    call it."""
    other = torch.accelerator.current_accelerator()
    kinds = dict.fromkeys((*AUTOMATIC, *([other.type] if other is not None else [])))
    modules = {kind: torch.get_device_module(kind) for kind in kinds}
    return ["cpu"] + [
        f"{kind}:{index}"
        for kind, module in modules.items()
        if module.is_available()
        for index in range(module.device_count())
    ]


def resolve_device(name: str, rank: int = 0) -> torch.device:
    """Find the device with a name: `auto`, a kind (`cpu`, `cuda`) or one device of it (`cuda:1`).

    If the name leaves a choice, rank r of several trainers gets the r-th device, modulo their number.
    """
    if name == "cpu":
        return CPU  # without asking drivers, so that actors on the CPU do not touch the accelerator
    available = available_devices()
    kinds = [device.partition(":")[0] for device in available]
    wanted = next((kind for kind in AUTOMATIC if kind in kinds), "cpu") if name == "auto" else name
    choice = [device for device, kind in zip(available, kinds, strict=True) if wanted in (device, kind)]
    if not choice:
        raise ValueError(f"no device {name!r}; choose from auto, {', '.join(available)} (torch {torch.__version__})")
    return torch.device(choice[rank % len(choice)])


def place(network: nn.Module, device: torch.device) -> nn.Module:
    """The same network, with its parameters and constants on the device."""
    return network.to(device)


def move(array: Array, device: torch.device, *, wait: bool = False) -> Tensor:
    """An array on the device, in its own dtype: images are copied as bytes. Without `wait`, the copy may still be in
    progress until a result is fetched, so the array must not change until then. On the CPU the memory is shared, except
    for read-only arrays, which torch does not support."""
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor if device == CPU else tensor.to(device, non_blocking=not wait)


def fetch(tensor: Tensor) -> Tensor:
    """A tensor on the CPU, once it is computed; the tensor itself if it is there already."""
    return tensor if tensor.is_cpu else tensor.cpu()
