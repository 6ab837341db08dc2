"""Gradient steps in several threads, and the networks of a learner as flat vectors for compiled ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.networks.dense_kernels import Stack, Team


def in_threads(number: int, call: Callable[[int], object]) -> None:
    """Call a function with 0 to `number - 1` in as many threads. It must release the GIL to run in parallel."""
    others = [Thread(target=call, args=(part,), daemon=True) for part in range(1, number)]
    for thread in others:
        thread.start()
    call(0)
    for thread in others:
        thread.join()


T = TypeVar("T")


class RowThreads:
    """Threads that call torch for parts of a minibatch. One of them is the caller's; the others run during an update,
    so that nothing is left behind. Unlike torch's own, they sleep while they wait: see `dense_kernels.meet`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        if self.number == 1:
            yield
            return
        with ThreadPoolExecutor(self.number - 1, initializer=torch.set_num_threads, initargs=(1,)) as self._pool:
            yield

    def each(self, call: Callable[[int], T]) -> list[T]:
        """Return the results of a function for 0 to `number - 1`."""
        assert self._pool is not None or self.number == 1
        others = [] if self._pool is None else [self._pool.submit(call, part) for part in range(1, self.number)]
        return [call(0), *(other.result() for other in others)]


def new_team(num_threads: int) -> Team:
    return Team(np.zeros((num_threads, 8), np.int64), np.zeros((num_threads, 8)))


def stack_of(
    learner: ModuleLearner, name: str, layers: Sequence[tuple[nn.Parameter, nn.Parameter]], num_threads: int
) -> Stack:
    """Return a network of a learner. `layers` are its weights [E, in, out] or [in, out] and biases, which are views of
    the learner's vector. One that the learner does not have is empty."""
    none = np.zeros(1, np.float32)
    if name not in learner.flat:
        return Stack(none, none, none[None], none, none, none, np.zeros((0, 2), np.int64), np.zeros(0, np.int64), 0)
    flat, adam = learner.flat[name], learner.adam[name]
    start = flat.values.data_ptr()
    offsets = np.array([[(part.data_ptr() - start) // 4 for part in pair] for pair in layers], np.int64)
    sizes = [weight.shape[-2] for weight, _ in layers] + [weight.shape[-1] for weight, _ in layers[-1:]]
    members = {weight.shape[0] if weight.ndim == 3 else 1 for weight, _ in layers}
    return Stack(
        flat.trainable.numpy(),
        learner.flat_targets[name].values.numpy() if name in learner.flat_targets else none,
        np.zeros((num_threads, len(flat.trainable)), np.float32),
        adam.exp_avg.numpy(),
        adam.exp_avg_sq.numpy(),
        adam.num_steps.numpy().reshape(1),
        offsets.reshape(-1, 2),
        np.array(sizes, np.int64),
        max(members, default=0),
    )
