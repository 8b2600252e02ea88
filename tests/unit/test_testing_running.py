"""check_observer and check_launcher: every promise that one of them breaks is reported."""

import contextlib
import io
import random

import pytest

from explore._cli.main import main
from explore._storage.files import Lock
from explore.interfaces import Launcher, News, Observer
from explore.testing import Nonconformance, check_launcher, check_observer, running


class AddsRows(Observer):
    def run_finished(self, run, summary):
        with (run.folder / "episodes.csv").open("a") as file:
            print("0,99", file=file)


class FailsInTheEnd(Observer):
    def run_finished(self, run, summary):
        raise RuntimeError(f"not when {run.status}")


class FailsLater(Observer):
    def run_started(self, run):
        if run.resumed_after:
            raise RuntimeError("again?")


class Meddles(Observer):
    """Sets everybody's generators."""

    def run_started(self, run):
        random.seed(3)


def test_an_observer_that_keeps_its_promises_passes():
    check_observer(Observer)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (AddsRows, "AddsRows changes a run: its episodes.csv has other rows than if nobody watches: an observer may"),
        (
            FailsInTheEnd,
            r"observer.FailsInTheEnd .* raises RuntimeError: not when \w+ \(.*test_testing_running.py:\d+\)",
        ),
        (FailsLater, r"observer.FailsLater .* raises RuntimeError: again\? \(.*test_testing_running.py:\d+\)"),
        (Meddles, "Meddles draws from the global generator of random"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_observer_that_breaks_a_promise_is_reported(cls, message):
    with pytest.raises(Nonconformance, match=message):
        check_observer(cls)


class InThisProcess(Launcher):
    """Keeps every promise, without waiting for processes."""

    def launch(self, tasks, asked_to_stop):
        for task in tasks:
            if not asked_to_stop():
                yield News(task)
                yield News(task, *self.run(task))

    def run(self, task):
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            code = main(task.words)
        return code, stderr.getvalue()


class NeverStops(InThisProcess):
    def launch(self, tasks, asked_to_stop):
        return super().launch(tasks, lambda: False)


class TellsNoCode(InThisProcess):
    def run(self, task):
        super().run(task)
        return 0, ""


class TellsNoText(InThisProcess):
    def run(self, task):
        return super().run(task)[0], ""


class DoesNothing(InThisProcess):
    def run(self, task):
        return (2, "siez") if task.name == "wrong" else (0, "")


class NeverBegins(InThisProcess):
    def launch(self, tasks, asked_to_stop):
        return (news for news in super().launch(tasks, asked_to_stop) if news.code is not None)


class LeavesRunning(InThisProcess):
    kept: list[Lock] = []  # noqa: RUF012

    def launch(self, tasks, asked_to_stop):
        if tasks[0].name != "closed":
            yield from super().launch(tasks, asked_to_stop)
        else:
            tasks[0].folder.mkdir()
            self.kept.append(Lock(tasks[0].folder))
            self.kept[0].acquire()
            yield News(tasks[0])


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (InThisProcess, None),
        (NeverStops, "NeverStops begins tasks after it was asked to stop: ask asked_to_stop"),
        (TellsNoCode, r"TellsNoCode tells \[None, 0\] of a task that ends with exit code 2: yield News"),
        (TellsNoText, "TellsNoText does not tell what a task wrote to stderr"),
        (DoesNothing, "DoesNothing has not run a task to its end: start explore with task.words"),
        (NeverBegins, "NeverBegins does not tell that a task has begun"),
        (LeavesRunning, "LeavesRunning leaves closed running when its iterator is closed: end what runs"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_launcher_that_breaks_a_promise_is_reported(cls, message, monkeypatch):
    for name, short in {"LONG": 5, "PATIENCE": 0.01, "GRACE": 0.02}.items():
        monkeypatch.setattr(running, name, short)
    told = pytest.raises(Nonconformance, match=message) if message else contextlib.nullcontext()
    with told:
        check_launcher(cls)
    for lock in LeavesRunning.kept:
        lock.release()
