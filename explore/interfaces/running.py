"""Who watches a run, and where the cells of a sweep are run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from explore._storage.run_folder import Run


class Observer:
    """Slot `observer`: watches the runs whose `experiment.observers` names it, and may write down what it sees.

    It changes nothing: a run gives the same bytes whoever watches. Built before the run's folder is;
    what is missing, such as a package, is said there with a `ValueError`. What it keeps is not part of
    checkpoints: when a run is resumed, `run.resumed_after` is the episode it is resumed after.

    Example:

        class Treasures(Observer):
            def episode_finished(self, run, rows):
                for row in rows:
                    if row["return"] > 0.5:
                        print(f"seed {row['seed']} found the treasure in episode {row['episode']}")
    """

    def run_started(self, run: Run) -> None:
        """The run is about to begin, or to go on; `run.folder` exists and holds `config.gin`."""

    def episode_finished(self, run: Run, rows: Sequence[dict[str, Any]]) -> None:
        """All seeds have finished an episode; `rows` are their new lines of `episodes.csv`."""

    def run_finished(self, run: Run, summary: dict[str, Any]) -> None:
        """The run is over: done, interrupted or failed (`run.status`); `summary` is `summary.json`."""


@dataclass(frozen=True)
class Task:
    """A cell of a sweep that is to be run, by `explore` with these words; its run goes to `folder`."""

    name: str
    words: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class News:
    """A task has begun, or begun again (`code` is None), or ended.

    An exit code below 0 is the signal that killed it. `text` is what it wrote to stderr, or why it
    had to begin again.
    """

    task: Task
    code: int | None = None
    text: str = ""


class Launcher(ABC):
    """Slot `launcher`: where and how the cells of a sweep are run.

    A task is a command that goes on with its run if the folder holds one already, so whoever kills
    a task may start it again. Built from `--jobs`, `--address` and bindings of its parameters.

    Example:

        class OneByOne(Launcher):
            def launch(self, tasks, asked_to_stop):
                for task in tasks:
                    if not asked_to_stop():
                        yield News(task)
                        command = [sys.executable, "-m", "explore", *task.words]
                        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
                        yield News(task, ended.returncode, ended.stderr)
    """

    @abstractmethod
    def launch(self, tasks: Sequence[Task], asked_to_stop: Callable[[], bool]) -> Iterator[News]:
        """Runs tasks and tells what becomes of each.

        Once `asked_to_stop()`, no more tasks begin, and those at work get SIGTERM or SIGINT once: they
        write a checkpoint and end. It is to be asked about once a second. If the iterator is closed or
        an exception passes through it, nothing may be left running.
        """
