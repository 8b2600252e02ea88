"""The checks of what stands around runs: observers and launchers."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from explore._config.discovery import Component, Registry
from explore._running.experiment import Experiment
from explore._running.preflight import preflight
from explore._running.trainer import Trainer
from explore._storage import files
from explore._storage.run_folder import Run
from explore._storage.run_writer import RunWriter
from explore.errors import Interrupted
from explore.interfaces import Launcher, News, Observer, Task
from explore.testing import toy
from explore.testing.promises import STANDARD, Options, Subject, join_names, shorten_traceback, try_component

EPISODES, CUT = 4, 2
LONG = 1_000  # episodes of a run that takes some seconds
PATIENCE = 8  # seconds for a process to begin
GRACE = 2  # seconds: launchers ask about once a second whether they are to stop
PROVENANCE = {"command": "check_observer", "versions": {}, "plugins": []}


class _Stop(Observer):
    """Interrupts a run that it has not seen go on, as Ctrl-C would."""

    def episode_finished(self, run: Run, rows: Sequence[dict[str, Any]]) -> None:
        if rows[0]["episode"] == CUT and not run.resumed_after:
            raise KeyboardInterrupt


@shorten_traceback
def check_observer(cls: type[Observer], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless an observer keeps all promises of its slot.

    It watches a run that is interrupted, and, newly built, how it goes on to its end.
    """
    with try_component("observer", cls, parameters) as subject, tempfile.TemporaryDirectory() as folder:
        registry = Registry()  # of nothing but what is tried, to be blamed if it fails
        registry.components[subject.name] = Component(
            "observer", subject.name, subject.cls, subject.cls.__module__, "explore.testing"
        )
        unwatched, _ = _run(Path(folder, "unwatched"), registry, [])
        with subject.attempt("when it watches a run"):
            whole, _ = _run(Path(folder, "whole"), registry, [subject.build])
            parts, status = _run(Path(folder, "parts"), registry, [subject.build, _Stop])
        subject.require(
            status == "interrupted",
            f"lets a run that is interrupted end as {status!r}",
            "let KeyboardInterrupt pass",
        )
        with subject.attempt("when it watches how a run goes on"):
            parts, _ = _resume(Path(folder, "parts"), registry, [subject.build])
        for rows, what in ((whole, "a run"), (parts, "a run that goes on")):
            subject.require(
                rows == unwatched,
                f"changes {what}: its episodes.csv has other rows than if nobody watches",
                "an observer may only look: it must not change rows, the run's files, or anything it is told of",
            )


def _experiment(observers: Sequence[Any]) -> Experiment:
    agent = toy.indexed(**toy.pins())
    return Experiment(toy.Walk, agent, EPISODES, (0, 1), checkpoint_every=CUT, observers=observers)


def _run(folder: Path, registry: Registry, observers: Sequence[Any]) -> tuple[list[str], str]:
    """The rows of a run, and how it ended."""
    experiment = _experiment(observers)
    preflight(experiment)
    writer = RunWriter.create(
        folder, name=folder.name, config="# explore.testing\n", quiet=True, task=experiment.description,
        columns=experiment.columns, seeds=experiment.seeds, episodes=EPISODES, **PROVENANCE,
    )  # fmt: skip
    with closing(writer), suppress(Interrupted):
        Trainer(experiment, writer, registry, resume_command="").train()
    return _rows(folder), writer.run.status


def _resume(folder: Path, registry: Registry, observers: Sequence[Any]) -> tuple[list[str], str]:
    """The same of a run that is resumed."""
    experiment = _experiment(observers)
    with closing(RunWriter.open_for_resume(folder, quiet=True)) as writer:
        run = writer.run
        after = run.checkpoints.episodes()[0]
        state = run.checkpoints.read(after)
        experiment.load_state_dict(state)
        writer.resume(after, state["rows"], config=run.config, command="check_observer")
        Trainer(experiment, writer, registry, resume_command="").train()
    return _rows(folder), run.status


def _rows(folder: Path) -> list[str]:
    """Without the wall clock."""
    return [line.rpartition(",")[0] for line in (folder / "episodes.csv").read_text().splitlines()]


@shorten_traceback
def check_launcher(cls: type[Launcher], options: Options = STANDARD, /, **parameters: Any) -> None:
    """Raises `Nonconformance` unless a launcher keeps all promises of its slot; it starts some processes."""
    with try_component("launcher", cls, parameters) as subject, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with subject.attempt("when it launches tasks"):
            launcher = subject.build()
            _check_tasks(subject, launcher, folder)
            _check_close(subject, launcher, folder)


def _task(folder: Path, name: str, *words: str, episodes: int | None = None) -> Task:
    place = folder / name
    bindings = [f"experiment.episodes = {episodes or LONG}", "experiment.seeds = (0,)", "environment.DeepSea.size = 3"]
    options = [word for binding in bindings for word in ("-b", binding)]
    return Task(name, ("run", "dqn_deep_sea", *options, *words, "--quiet", "--out", str(place)), place)


def _check_tasks(subject: Subject, launcher: Launcher, folder: Path) -> None:
    """A task that is wrong, a short one, and long ones, which begin until it is asked to stop."""
    wrong = _task(folder, "wrong", "-b", "environment.DeepSea.siez = 4")
    short, long = _task(folder, "short", episodes=2), [_task(folder, f"long{number}") for number in range(12)]
    told: dict[str, list[News]] = {task.name: [] for task in (wrong, short, *long)}
    asked: list[float] = []  # when
    for news in launcher.launch([wrong, short, *long], lambda: bool(asked)):
        told[news.task.name].append(news)
        if news.code is None:
            subject.require(
                not asked or time.monotonic() < asked[0] + GRACE,
                "begins tasks after it was asked to stop",
                "ask asked_to_stop() before each of them",
            )
        at_work = [task for task in long if told[task.name] and told[task.name][0].code is None]
        ended = all(told[task.name] and told[task.name][-1].code is not None for task in (wrong, short))
        if at_work and ended and not asked:
            _wait(at_work[0])
            asked.append(time.monotonic())
    subject.require(bool(asked), "does not tell that a task has begun", "yield News(task) when it begins")
    for task, code in ((wrong, 2), (short, 0)):
        codes = [news.code for news in told[task.name]]
        subject.require(
            codes in ([code], [None, code]),
            f"tells {codes} of a task that ends with exit code {code}",
            f"yield News(task) when it begins and News(task, {code}, text) when it has ended",
        )
    subject.require(
        "siez" in told["wrong"][-1].text,
        "does not tell what a task wrote to stderr",
        "yield it as the text of News(task, code, text)",
    )
    subject.require(_status(short) == "done", "has not run a task to its end", "start explore with task.words")
    for task in long:
        subject.require(
            _status(task) in ("not begun", "interrupted", "done"),
            f"leaves a run {_status(task)} when it is asked to stop",
            "send SIGTERM or SIGINT once, and wait for the task to write its checkpoint and end",
        )
    _check_nothing_runs(subject, long, "after it was asked to stop")


def _status(task: Task) -> str:
    return Run.open(task.folder).status if (task.folder / "run.json").exists() else "not begun"


def _check_close(subject: Subject, launcher: Launcher, folder: Path) -> None:
    task = _task(folder, "closed")
    told = launcher.launch([task], lambda: False)
    next(told)
    _wait(task)
    told.close()  # type: ignore[attr-defined]
    _check_nothing_runs(subject, [task], "when its iterator is closed")


def _check_nothing_runs(subject: Subject, tasks: Sequence[Task], when: str) -> None:
    running = [task.name for task in tasks if task.folder.exists() and files.is_locked(task.folder)]
    subject.require(
        not running, f"leaves {join_names(running)} running {when}", "end what runs, and wait for it, in a `finally`"
    )


def _wait(task: Task) -> None:
    """Until the run of a task has begun, which that of a launcher that runs it itself does not meanwhile."""
    end = time.monotonic() + PATIENCE
    while not files.is_locked(task.folder) and time.monotonic() < end:
        time.sleep(0.05)
