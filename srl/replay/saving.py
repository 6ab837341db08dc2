"""Replay that its own worker saves: on a cluster, the controller cannot read the memory of other hosts."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from srl.api.control import Notice
from srl.api.worker import Context, RunBroken
from srl.base.files import explain_os_error
from srl.base.shared_memory import KeptMemory
from srl.replay.saved import MANIFEST, SavedShard

CLOSE_SECONDS = 30.0


@dataclass(frozen=True)
class ReplaySaving:
    """Where a worker saves its replay, and how often."""

    folder: str = ""  # of the policy, in the run directory; empty: this worker does not save it
    seconds: float = 30.0

    def open(self, context: Context, policy: str, shards: int) -> ReplaySaver:
        """Prepare the kept memory of a worker, one of `shards`, before it makes arrays there: fill it from what was
        saved if it has no content. Raises RunBroken if this host does not have the run directory."""
        index = context.worker_id.index
        kept = context.kept_memory(policy, index)
        if kept is not None and index == 0:
            kept.free_beyond(shards)
        if kept is None or not self.folder:
            return ReplaySaver(context)
        folder = Path(self.folder)
        if not folder.parent.is_dir():
            raise RunBroken(
                f"--save-replay needs the run directory on the hosts that keep replay, but {folder.parent} does not "
                "exist on this one. Choose a --root that all hosts share, or leave out --save-replay"
            )
        if index == 0:
            for path in folder.glob("*"):
                if path.name.isdecimal() and int(path.name) >= shards:  # of an earlier, larger group of workers
                    shutil.rmtree(path, ignore_errors=True)
        saved = SavedShard(folder / str(index))
        is_new = kept.layout() is None and (folder / str(index) / MANIFEST).exists()
        return ReplaySaver(context, kept, saved, self.seconds, saved.fill(kept) if is_new else [])


NOT_SAVED = ReplaySaving()


class ReplaySaver:
    """Saves the replay of a worker in a thread, and a last time when it is closed; only what is new is written."""

    def __init__(
        self,
        context: Context,
        kept: KeptMemory | None = None,
        saved: SavedShard | None = None,
        seconds: float = 0.0,
        problems: list[str] | None = None,
    ) -> None:
        self._context, self._kept, self._saved, self._seconds = context, kept, saved, seconds
        self._messages = deque(problems or [])
        self._failing = False  # whether the last save failed
        self._error: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replay-saver", daemon=True)
        if saved is not None:
            self._thread.start()

    def poll(self) -> None:
        """Report what could not be saved or used."""
        if self._error is not None:
            raise RuntimeError(f"saving the replay failed: {self._error}") from self._error
        while self._messages:
            self._context.report(Notice(self._messages.popleft()))

    def close(self) -> None:
        self._closing.set()
        if self._saved is not None:
            self._thread.join(CLOSE_SECONDS)
            self.poll()

    def _run(self) -> None:
        try:
            while not self._closing.wait(self._seconds):
                self._save()
            self._save()
        except BaseException as error:
            self._error = error

    def _save(self) -> None:
        assert self._kept is not None
        assert self._saved is not None
        try:
            self._saved.write(self._kept)
        except OSError as error:
            if not self._failing:
                self._messages.append(f"the replay was not saved: {explain_os_error(error)}; training continues")
            self._failing = True
            return
        if self._failing:
            self._messages.append("the replay is saved again")
        self._failing = False
