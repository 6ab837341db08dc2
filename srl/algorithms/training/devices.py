"""Device names, and the only functions that copy to and from a device."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from srl.base.tree import Array

CPU = torch.device("cpu")
AUTOMATIC = ("cuda", "mps")  # kinds that `auto` tries in order; others must be named


def available_devices() -> list[str]:
    """Return the devices that torch can use, `cpu` first. This queries drivers, so do not call it before a fork."""
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
    """Return the device for `auto`, a kind (`cpu`, `cuda`) or a single device (`cuda:1`).

    If several devices match, trainer rank r gets the r-th one, modulo their number.
    """
    if name == "cpu":
        return CPU  # does not query drivers, so actors on the CPU do not touch the accelerator
    available = available_devices()
    kinds = [device.partition(":")[0] for device in available]
    wanted = next((kind for kind in AUTOMATIC if kind in kinds), "cpu") if name == "auto" else name
    choice = [device for device, kind in zip(available, kinds, strict=True) if wanted in (device, kind)]
    if not choice:
        raise ValueError(f"no device {name!r}; choose from auto, {', '.join(available)} (torch {torch.__version__})")
    return torch.device(choice[rank % len(choice)])


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether products of such numbers are known to be faster than those of float32."""
    if device.type == "cpu":
        return "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    return device.type == "cuda"


def place(network: nn.Module, device: torch.device) -> nn.Module:
    """Move the network's parameters and constants to the device and return it."""
    return network.to(device)


def move(array: Array, device: torch.device, *, wait: bool = False) -> Tensor:
    """Copy an array to the device in its own dtype, so images stay bytes. Without `wait`, the copy may be in progress
    until a result is fetched, and the array must not change until then. On the CPU the tensor shares the array's memory
    unless the array is read-only, which torch does not support."""
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return tensor if device == CPU else tensor.to(device, non_blocking=not wait)


def fetch(tensor: Tensor) -> Tensor:
    """Return the tensor on the CPU, waiting until it is computed. A CPU tensor is returned as is."""
    return tensor if tensor.is_cpu else tensor.cpu()
