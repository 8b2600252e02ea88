"""Runs the cells of a sweep as processes on this machine, as many at a time as it has cores."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from subprocess import DEVNULL, Popen
from typing import IO

from explore import hookimpl
from explore.interfaces import Launcher, News, Task

RETRIES = 2
PAUSE = 0.05  # seconds between looks at the processes


@hookimpl
def explore_launchers() -> list[type]:
    return [Local]


class Local(Launcher):
    """Each cell is a process with one thread; if it is killed it starts again, twice at most.

    Args:
      jobs: how many run at a time; None: as many as there are cores.
    """

    def __init__(self, jobs: int | None = None):
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs!r}")
        self.jobs = jobs or _count_cores()

    def launch(self, tasks: Sequence[Task], asked_to_stop: Callable[[], bool]) -> Iterator[News]:
        waiting, running = deque(tasks), list[_Job]()
        killed = Counter[str]()  # how often, by the name of the task
        stopping = False
        try:
            while waiting or running:
                if asked_to_stop() and not stopping:
                    stopping = True
                    waiting.clear()
                    for job in running:
                        job.process.terminate()
                while waiting and len(running) < self.jobs and not asked_to_stop():
                    task = waiting.popleft()
                    running.append(_Job.start(task))
                    again = f"killed, begins again ({killed[task.name]} of {RETRIES})" if killed[task.name] else ""
                    yield News(task, text=again)
                for job in [job for job in running if job.process.poll() is not None]:
                    running.remove(job)
                    code = job.process.returncode
                    if code < 0 and not stopping and killed[job.task.name] < RETRIES:
                        killed[job.task.name] += 1
                        waiting.appendleft(job.task)
                    else:
                        yield News(job.task, code, job.read_output())
                time.sleep(PAUSE)
        finally:
            for job in running:
                job.process.kill()
                job.process.wait()


@dataclass(frozen=True)
class _Job:
    task: Task
    process: Popen
    stderr: IO[bytes]

    @classmethod
    def start(cls, task: Task) -> _Job:
        # A file, as a pipe that nobody reads could fill up.
        stderr = tempfile.TemporaryFile()  # noqa: SIM115
        process = Popen(
            [sys.executable, "-P", "-m", "explore", *task.words],
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=stderr,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": _module_path()},
            process_group=0,  # Ctrl-C reaches this process alone, which then asks each cell once
        )
        return cls(task, process, stderr)

    def read_output(self) -> str:
        with self.stderr as file:
            file.seek(0)
            return file.read().decode(errors="replace")


def _count_cores() -> int:
    """Those that this process may use, where the system says."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _module_path() -> str:
    """Where this process finds modules, the user's plugins among them."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)
