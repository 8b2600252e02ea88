"""Runs the cells of a sweep on a Ray cluster; the extra `ray` installs what it needs.

A cell is a Ray task that runs inside its worker, so it dies with the worker and frees the lock of its
folder. Ray starts a lost task again on another node, where it resumes from its checkpoint: all nodes
must share the sweep's folder.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from explore import Run, hookimpl
from explore.errors import UserError
from explore.interfaces import Launcher, News, Task

RETRIES = 2
PATIENCE = 60
"""Seconds that a task waits for its folder to be free: a worker may outlive its node for a moment."""


@hookimpl
def explore_launchers() -> list[type]:
    return [Ray]


class Ray(Launcher):
    """Each cell is a task of one CPU; if its worker or node is lost it starts again, twice at most.

    Args:
      address: of a running cluster; None: start one on this machine, which ends with the sweep.
      jobs: CPUs of the cluster that is started; None: as many as there are cores.
    """

    def __init__(self, address: str | None = None, jobs: int | None = None):
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs!r}")
        if address is not None and jobs is not None:
            raise ValueError("jobs is for a cluster that is started here; the one at the address has its own CPUs")
        self.ray = _import_ray()
        self.address, self.jobs = address, jobs

    def launch(self, tasks: Sequence[Task], asked_to_stop: Callable[[], bool]) -> Iterator[News]:
        ray = self.ray
        left: dict[Any, Task] = {}
        try:
            with _keep_signals():
                self._connect()
            remote = ray.remote(num_cpus=1, max_calls=1, max_retries=RETRIES)(run_cell)
            left.update((remote.remote(task.words, str(task.folder)), task) for task in tasks)
            yield from self._follow(left, asked_to_stop)
        finally:
            if ray.is_initialized():
                self._cancel(left, force=True)
                with _keep_signals():
                    ray.shutdown()

    def _follow(self, left: dict[Any, Task], asked_to_stop: Callable[[], bool]) -> Iterator[News]:
        """Reports what becomes of the tasks that are left, until none is."""
        begun: set[str] = set()
        stopping = False
        while left:
            if asked_to_stop():
                # A worker that is still importing does not notice, and Ray itself asks it again only
                # after seconds: a run is asked once, what has not begun until it ends.
                asking = [one for one, task in left.items() if not stopping or task.name not in begun]
                self._cancel(asking, force=False)
                stopping = True
            ended, _ = self.ray.wait(list(left), num_returns=len(left), timeout=0.5)
            for task in left.values():
                if task.name not in begun and _is_running(task.folder):
                    begun.add(task.name)
                    yield News(task)
            for reference in ended:
                yield News(left.pop(reference), *self._get_outcome(reference))

    def _cancel(self, left: Iterable[Any], force: bool) -> None:
        for reference in left:
            self.ray.cancel(reference, force=force, recursive=force)

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
            raise UserError(f"no Ray cluster is available {where}: {' '.join(str(error).split())}") from error

    def _get_outcome(self, reference: Any) -> tuple[int, str]:
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
    """Runs a cell in a worker; returns its exit code and what it wrote to stderr."""
    end = time.monotonic() + PATIENCE
    while _is_running(Path(folder)) and time.monotonic() < end:
        time.sleep(0.2)
    sys.argv = ["explore", *words]
    code = 0
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        try:
            runpy.run_module("explore", run_name="__main__")
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, stderr.getvalue()


def _is_running(folder: Path) -> bool:
    try:
        return Run.open(folder).status == "running"
    except UserError:  # it has not begun
        return False


def _import_ray() -> Any:
    try:
        with _keep_signals():
            import ray
    except ImportError:
        raise UserError("launcher.Ray needs Ray, which is not installed: pip install 'explore-rl[ray]'") from None
    return ray


@contextlib.contextmanager
def _keep_signals() -> Iterator[None]:
    """Ray replaces the handler of SIGTERM when it is imported and started; this puts it back."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
