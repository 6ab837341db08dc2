"""Activation functions that are faster than those of torch where no gradient is needed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def tanh_(tensor: Tensor) -> Tensor:
    """Replace the elements by their tanh, and return the tensor.

    The tanh of torch takes 2 ns per element on a CPU and is half the time of a small network. That of numpy uses vector
    instructions and takes a tenth of it, but autograd and the compilers of torch do not see it.
    """
    if tensor.requires_grad or tensor.dtype != torch.float32 or not tensor.is_cpu or torch.compiler.is_compiling():
        return tensor.tanh_()
    array = tensor.numpy()
    np.tanh(array, out=array)
    return tensor
