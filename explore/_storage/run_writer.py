"""What writes the folder of a run, under its lock.

JSON files are replaced as a whole or not at all; rows of `episodes.csv` are appended as the run goes, and
those that a checkpoint does not know are removed when the run is resumed from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from explore._storage import files
from explore._storage.episodes_csv import EpisodesFile
from explore._storage.run_folder import FORMAT, Run, read_info, to_json, write_json
from explore.errors import FolderTaken, RunFailed, UserError
from explore.tasks import TaskDescription

BEFORE_IT_BEGINS = {".lock", "config.gin", "episodes.csv"}
"""The files that a folder may hold of a run that was killed before it had a `run.json`."""


class RunWriter:
    """Records a run; made by `create` or `open_for_resume`, and holds the folder's lock until `close`."""

    def __init__(self, run: Run, lock: files.Lock, config: str = ""):
        self.run = run
        self.config = config
        self.episodes = EpisodesFile(run.folder / "episodes.csv", run.info["columns"])
        self._lock = lock

    @classmethod
    def create(
        cls, folder: Path | None, *, config: str, task: TaskDescription, quiet: bool = False, **facts: Any
    ) -> RunWriter:
        """A run in a new folder: the given one, or the first free of `runs/NAME`, `runs/NAME-2`, ...

        `facts` are the other entries of `run.json` that are known before the run: its name, seeds, ...
        """
        times = {"status": "running", "reason": None, "started": _now(), "finished": None, "seconds": None}
        info = to_json({"format": FORMAT, "task": task.to_json(), "notes": [], **facts, **times, "resumed": []})
        with ExitStack() as undo:
            try:
                place = _make_folder(folder, info["name"], undo)
                lock = files.Lock(place)
                lock.acquire()
                undo.callback(lock.release)
                _check_free(place)  # again: another process may have had it while this one waited for the lock
                undo.callback((place / ".lock").unlink)
                writer = cls(Run(place, info, quiet), lock, config)
                for name in ("config.gin", "episodes.csv", "run.json"):
                    undo.callback((place / name).unlink, missing_ok=True)
                files.write(place / "config.gin", config)
                writer.episodes.truncate(None)
                write_json(place / "run.json", info)
            except OSError as error:
                raise UserError(
                    f"cannot write the run folder {folder or Path('runs', info['name'])}: {error.strerror}; "
                    "choose another with --out"
                ) from error
            undo.pop_all()
        return writer

    @classmethod
    def open_for_resume(cls, folder: Path, quiet: bool = False) -> RunWriter:
        """The writer of a run that is to be resumed; nothing is changed before `resume`."""
        lock = files.Lock(Run.open(folder).folder)
        try:
            lock.acquire()
        except OSError as error:
            raise RunFailed(f"cannot resume {folder}: {error.strerror}") from error
        return cls(Run(Path(folder), read_info(folder), quiet), lock)  # another process may have changed it until now

    def resume(self, after: int, mark: Mapping[str, Any] | None, *, config: str, command: Any, **facts: Any) -> None:
        """Goes on after an episode: removes what came later, and all rows but those that `mark` stands for.

        `facts` are entries of `run.json` that are to be replaced, `command` and `forced` what resumed it.
        """
        run, forced = self.run, facts.pop("forced", ())
        self.config, run.resumed_after = config, after
        resumed = {"at": _now(), "after_episode": after, "episodes": run.info["episodes"]}
        resumed |= {"command": command, "forced": list(forced)}
        run.info |= {**facts, "status": "running", "reason": None, "finished": None, "seconds": None}
        run.info["resumed"] = [*run.info["resumed"], resumed]
        with _report_write_errors("to", run.folder):
            run.checkpoints.remove_after(after)
            run.snapshots.remove_after(after)
            self.episodes.truncate(mark)
            (run.folder / "summary.json").unlink(missing_ok=True)  # the run has not ended any more
            if config != run.config:
                files.write(run.folder / "config.gin", config)
            write_json(run.folder / "run.json", run.info)

    def replace(
        self,
        config: str,
        rows: str,
        snapshots: Mapping[int, Mapping[str, np.ndarray]],
        summary: Mapping[str, Any],
        **facts: Any,
    ) -> None:
        """Replaces all that a run holds, but for its parts, which can do it again if this is interrupted.

        In between its status is "running". `facts` are entries of `run.json`, `seconds` among them.
        """
        run = self.run
        with _report_write_errors("to", run.folder):
            write_json(run.folder / "run.json", {**run.info, "status": "running"})
            files.write(run.folder / "config.gin", config)
            files.write(run.folder / "episodes.csv", rows)
            for episode in {*run.snapshots.episodes()} - {*snapshots}:
                run.snapshots.remove(episode)
            run.snapshots.seeds = len(facts["seeds"])
            for episode, arrays in snapshots.items():
                run.snapshots.write(episode, arrays)
            run.checkpoints.remove_after(0)
        run.info |= facts
        self.finish("done", summary, seconds=facts["seconds"])

    def add_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends rows to `episodes.csv`."""
        self.episodes.append(rows)

    def add_snapshot(self, episode: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Adds what was believed after an episode."""
        with _report_write_errors("to", self.run.snapshots.folder):
            self.run.snapshots.write(episode, arrays)

    def remove_snapshot(self, episode: int) -> None:
        with _report_write_errors("to", self.run.snapshots.folder):
            self.run.snapshots.remove(episode)

    def add_checkpoint(self, episode: int, state: Mapping[str, Any]) -> None:
        """Adds the state after an episode, with the configuration and the rows that belong to it."""
        with _report_write_errors("the checkpoint to", self.run.checkpoints.folder):
            known = {"episode": episode, "config": self.config, "rows": self.episodes.mark()}
            self.run.checkpoints.write(episode, {**known, **state})

    def finish(
        self, status: str, summary: Mapping[str, Any], reason: str | None = None, seconds: float | None = None
    ) -> None:
        """Ends the recording with `summary.json` and the status: "done", "interrupted" or "failed"."""
        run = self.run
        run.info |= {"status": status, "reason": reason, "finished": _now(), "seconds": seconds}
        contents = {"summary.json": summary, "run.json": run.info}
        with _report_write_errors("the summary to", run.folder):
            for name in contents if status == "done" else reversed(contents):  # a run that is done has a summary
                write_json(run.folder / name, contents[name])

    def close(self) -> None:
        """Releases the folder to other processes."""
        self._lock.release()


@contextmanager
def _report_write_errors(what: str, where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFailed(f"cannot write {what} {where}: {error.strerror}") from error


def find_latest(name: str) -> Path | None:
    """The folder of the latest run of a name for which no folder was given."""
    return next(iter(reversed([*takewhile(Path.is_dir, _number(name))])), None)


def _number(name: str) -> Iterator[Path]:
    """`runs/NAME`, `runs/NAME-2`, ..."""
    return (Path("runs", name if n == 1 else f"{name}-{n}") for n in count(1))


def _make_folder(folder: Path | None, name: str, undo: ExitStack) -> Path:
    """Makes the given folder, or the first free one of the name.

    A given one may exist if it is empty, or holds only what is left of a run that was killed before it began.
    """
    for candidate in [folder] if folder else _number(name):
        for parent in reversed(candidate.parents):
            if not parent.exists():
                files.make_folder(parent)
                undo.callback(_remove_if_empty, parent)
        try:
            files.make_folder(candidate)
            undo.callback(_remove_if_empty, candidate)
            return candidate
        except FileExistsError:
            if folder:
                _check_free(folder)
                return folder
    raise AssertionError("numbers have an end")


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # another process may have put a run there
        folder.rmdir()


def _check_free(folder: Path) -> None:
    """Raises `UserError` unless a folder is empty, or holds only what is left of a run that never began."""
    names = {file.name for file in folder.iterdir() if file.suffix != ".part"} if folder.is_dir() else {"a file"}
    if "run.json" in names:
        raise FolderTaken(f"{folder} holds a run already; resume it with --resume, or choose another with --out")
    if names and not ".lock" in names <= BEFORE_IT_BEGINS:
        raise UserError(f"the run folder {folder} exists already; choose another with --out")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
