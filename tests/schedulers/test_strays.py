"""Processes that workers left behind."""

from __future__ import annotations

import os
import subprocess
import threading
from itertools import islice

import psutil
import pytest
from support.waiting import wait_for

from srl.schedulers.local.strays import MARK, MarkedCalls, kill_strays, mark_process, new_mark, worker_marks


def start(mark: int, by_limit: bool) -> subprocess.Popen[bytes]:
    """Start a process that has the mark in its limit, or in its environment."""
    env = {} if by_limit else {**os.environ, MARK: str(mark)}
    prepare = (lambda: mark_process(mark)) if by_limit else None
    return subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True, preexec_fn=prepare)


@pytest.mark.parametrize("by_limit", [True, False])
def test_only_processes_with_the_mark_or_one_below_it_are_killed(by_limit: bool) -> None:
    mark = new_mark()
    marks = (mark, *islice(worker_marks(mark), 2), new_mark())
    started = [start(each, by_limit) for each in marks]
    try:
        kill_strays(marks[1])
        wait_for(lambda: started[1].poll() == -9, "that of worker 1 is killed")
        assert [process.poll() for process in started] == [None, -9, None, None]
        kill_strays(mark)
        wait_for(lambda: [process.poll() for process in started[:3]] == [-9, -9, -9], "all of the run are killed")
        assert started[3].poll() is None
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_an_empty_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        kill_strays(0)


def test_calls_mark_what_they_start_and_no_other_thread_does_meanwhile() -> None:
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        started.append(subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True))

    def in_thread() -> None:
        entered.wait()
        begin()
        done.set()

    calls, entered, done = MarkedCalls(), threading.Event(), threading.Event()
    own_thread = threading.Thread(target=in_thread)
    own_thread.start()
    try:
        begin()
        with calls:
            entered.set()
            done.wait()  # of the user's own thread
            with calls:
                begin()
            thread = threading.Thread(target=begin)  # of the environment
            thread.start()
            thread.join()
        begin()
        calls.kill_strays()
        wait_for(lambda: [started[i].poll() for i in (2, 3)] == [-9, -9], "what the calls started is killed")
        assert [psutil.pid_exists(started[i].pid) and started[i].poll() for i in (0, 1, 4)] == [None, None, None]
    finally:
        own_thread.join()
        for process in started:
            process.kill()
            process.wait()
