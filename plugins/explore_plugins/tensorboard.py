"""Curves of a run for TensorBoard; the extra `tensorboard` installs what it needs.

One event holds all numbers of a seed's episode and is in its file when the episode is over, so before
any checkpoint that counts the episode: a kill leaves no gap. torch's `SummaryWriter` has a thread per
seed and an event per number, takes four times as long, and loses what is in its queues.
"""

from __future__ import annotations

import math
import os
import textwrap
import time
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from explore import hookimpl
from explore.errors import RunFailed
from explore.interfaces import Observer

if TYPE_CHECKING:
    from explore import Run

NO_CURVES = ("seed", "episode")
JUDGEMENT = ("score", "solved_at")
"""What of `summary.json` no curve says."""


@hookimpl
def explore_observers() -> list[type]:
    return [TensorBoard]


class TensorBoard(Observer):
    """Every column of `episodes.csv` that holds numbers as a curve, one per seed, over episodes.

    `tensorboard --logdir RUN/tensorboard` shows them while the run is going, and afterwards: returns and
    all else under `episode/`, losses under `loss/`, in the end each seed's score and when it solved
    the task under `summary/`, and `config.gin` as a text. When a run goes on, what came after its
    checkpoint is hidden; a run that was not watched before gets its earlier episodes too.

    Args:
      folder: where each run gets a folder of its name; None: `tensorboard` in the run's folder.
      every: a curve has a point at every so many episodes.
    """

    def __init__(self, folder: str | None = None, every: int = 1):
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every!r}")
        self.folder = Path(os.path.expanduser(folder)) if folder is not None else None
        if self.folder and self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"folder must not be a file, got {folder!r}")
        self.every = every
        self.tensorboard = _import_tensorboard()
        self.files: dict[int, Path] = {}  # of each seed
        self.episode = 0  # the latest

    def run_started(self, run: Run) -> None:
        own = self.folder / run.folder.resolve().name if self.folder else run.folder / "tensorboard"
        watched_before = own.exists()
        if self.folder:
            self._claim(own, f"{run.folder.resolve()}\n{run.info['started']}\n")
        self.episode = run.resumed_after
        for seed in run.info["seeds"]:
            self.files[seed] = self._new_file(own / f"seed_{seed}", self.episode + 1)
        code = textwrap.indent(run.config, "    ")  # as Markdown has it
        self._add(run.info["seeds"][0], self.episode + 1, self.tensorboard.text_pb("config.gin", code))
        if self.episode and not watched_before:
            earlier = run.episodes
            self._add_rows([dict(zip(earlier, cells)) for cells in zip(*earlier.values())])

    def _claim(self, own: Path, whose: str) -> None:
        """Makes a folder the run's, by where and when that began; raises `RunFailed` if it is another's."""
        mark = own.with_name(f".{own.name}")
        if own.exists() and (not mark.is_file() or mark.read_text() != whose):
            raise RunFailed(f"{own} holds the events of another run; choose another observer.TensorBoard.folder")
        own.mkdir(parents=True, exist_ok=True)
        mark.write_text(whose)

    def episode_finished(self, run: Run, rows: Sequence[dict[str, Any]]) -> None:
        self._add_rows(rows)
        self.episode = rows[0]["episode"]

    def run_finished(self, run: Run, summary: dict[str, Any]) -> None:
        if run.status == "done":
            for seed, said in summary["seeds"].items():
                self._add_numbers(int(seed), self.episode, {f"summary/{name}": said.get(name) for name in JUDGEMENT})

    def _add_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            seed, episode = int(row["seed"]), int(row["episode"])
            if episode % self.every == 0:
                curves = {_tag(name): value for name, value in row.items() if name not in NO_CURVES}
                self._add_numbers(seed, episode, curves)

    def _add_numbers(self, seed: int, episode: int, values: Mapping[str, Any]) -> None:
        """Adds those of the values that are numbers, as float32, which is all that TensorBoard shows."""
        summary = self.tensorboard.Summary()
        for tag, value in values.items():
            if isinstance(value, Real | np.bool_) and not math.isnan(value):
                summary.value.add(tag=tag, simple_value=float(value))
        self._add(seed, episode, summary)

    def _new_file(self, folder: Path, first: int) -> Path:
        """A file beside those of earlier processes; of theirs TensorBoard hides what begins with episode `first`."""
        event, log = self.tensorboard.Event, self.tensorboard.SessionLog
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"events.out.tfevents.{len(list(folder.iterdir())):010}"  # they are read in this order
            path.touch(exist_ok=False)
        except OSError as error:
            raise RunFailed(f"cannot write to {folder}: {error.strerror}") from error
        self._append(path, event(file_version="brain.Event:2"))
        self._append(path, event(step=first, session_log=log(status=log.START)))
        return path

    def _add(self, seed: int, episode: int, summary: Any) -> None:
        self._append(self.files[seed], self.tensorboard.Event(step=episode, summary=summary))

    def _append(self, path: Path, event: Any) -> None:
        event.wall_time = time.time()
        try:
            with path.open("ab") as file:
                self.tensorboard.RecordWriter(file).write(event.SerializeToString())
        except OSError as error:
            raise RunFailed(f"cannot write {path}: {error.strerror}") from error


def _tag(column: str) -> str:
    return f"loss/{column}" if column.endswith("loss") else f"episode/{column}"


def _import_tensorboard() -> SimpleNamespace:
    """The parts of TensorBoard that write events; none of them needs TensorFlow."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise ValueError("TensorBoard is not installed: pip install 'explore-rl[tensorboard]'") from None
    return SimpleNamespace(
        Event=Event, SessionLog=SessionLog, Summary=Summary, RecordWriter=RecordWriter, text_pb=text_pb
    )
