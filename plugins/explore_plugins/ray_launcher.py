"""Runs the cells of a sweep on a Ray cluster; the extra `ray` installs what it needs.

A cell is a Ray task, run inside the worker that Ray starts for it, so that it dies with the worker and
frees the lock of its folder. Ray starts a lost task again on another node, where it goes on from its
checkpoint: the sweep's folder must be one that all nodes share.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from explore import hookimpl
from explore._storage import files
from explore.errors import UserError
from explore.interfaces import Launcher, News, Task

RETRIES = 2
PATIENCE = 60
"""Seconds that a task waits for the lock of its folder: a worker may outlive its node for a moment."""


@hookimpl
def explore_launchers() -> list[type]:
    return [Ray]


class Ray(Launcher):
    """Each cell is a task of one CPU; one whose worker or node is lost begins again, twice at most.

    Args:
      address: of a running cluster; None: one is started on this machine, and ends with the sweep.
      jobs: CPUs of the cluster that is started; None: as many as there are cores.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None):
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs!r}")
        if address is not None and jobs is not None:
            raise ValueError("jobs is for a cluster that is started here; the one at the address has its own CPUs")
        self.ray = _imported()
        self.address, self.jobs = address, jobs

    def launch(self, tasks: Sequence[Task], asked_to_stop: Callable[[], bool]) -> Iterator[News]:
        ray = self.ray
        left: dict[Any, Task] = {}
        try:
            with _signals_kept():
                self._connect()
            remote = ray.remote(num_cpus=1, max_calls=1, max_retries=RETRIES)(run_cell)
            left = {remote.remote(task.words, str(task.folder)): task for task in tasks}
            begun: set[str] = set()
            stopping = False
            while left:
                if asked_to_stop() and not stopping:
                    stopping = True
                    for reference in left:
                        ray.cancel(reference, force=False, recursive=False)
                ended, _ = ray.wait(list(left), timeout=0.5)
                for task in left.values():
                    if task.name not in begun and files.is_locked(task.folder):
                        begun.add(task.name)
                        yield News(task)
                for reference in ended:
                    yield News(left.pop(reference), *self._outcome(reference))
        finally:
            if ray.is_initialized():
                for reference in left:
                    ray.cancel(reference, force=True)
                with _signals_kept():
                    ray.shutdown()

    def _connect(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        try:
            if self.address is None:
                self.ray.init("local", num_cpus=self.jobs, include_dashboard=False, **quiet)
            else:
                self.ray.init(self.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"at {self.address}" if self.address else "on this machine"
            raise UserError(f"there is no Ray cluster to be had {where}: {' '.join(str(error).split())}") from error

    def _outcome(self, reference: Any) -> tuple[int, str]:
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.TaskCancelledError:
            return 128 + signal.SIGINT, ""
        except errors.RayTaskError as error:
            return 1, f"{type(error.cause).__name__}: {error.cause}"
        except errors.RayError:  # the worker, its node, or its memory
            return -signal.SIGKILL, ""


def run_cell(words: Sequence[str], folder: str) -> tuple[int, str]:
    """Runs a cell in a worker; its exit code, and what it wrote to stderr."""
    from explore._cli.main import main

    end = time.monotonic() + PATIENCE
    while files.is_locked(Path(folder)) and time.monotonic() < end:
        time.sleep(0.2)
    sys.argv = ["explore", *words]
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = main(words)
    return code, stderr.getvalue()


def _imported() -> Any:
    try:
        with _signals_kept():
            import ray
    except ImportError:
        raise UserError("launcher.Ray needs Ray, which is not installed: pip install 'explore-rl[ray]'") from None
    return ray


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes over SIGTERM when it is imported; here signals stay those of whoever called."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
