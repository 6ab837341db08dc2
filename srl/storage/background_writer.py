"""A thread that writes checkpoints so that supervision does not wait for the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundWriter:
    """Runs write jobs one after the other, in a thread or, where not `threaded`, at once.

    A disk may need half a minute for a checkpoint. A controller that waits for it sends nothing in that time, and hosts
    would conclude that it is gone. A run in a single process has no such hosts and writes at once.
    """

    def __init__(self, threaded: bool) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint-writer") if threaded else None
        self._jobs: deque[Future[None]] = deque()

    @property
    def busy(self) -> bool:
        """Whether a job is waiting or running. Unexpected errors of jobs are raised here and in `finish`."""
        while self._jobs and self._jobs[0].done():
            self._jobs.popleft().result()
        return bool(self._jobs)

    def submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            job()
        else:
            self._jobs.append(self._thread.submit(job))

    def finish(self) -> None:
        """Wait until all jobs are done."""
        while self._jobs:
            self._jobs.popleft().result()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown()
