"""A run and its folder.

    RUN/config.gin     the complete configuration: `explore run RUN/config.gin` repeats the run
        run.json       status, seeds, command line, and the versions of all that took part
        episodes.csv   a row per seed and episode
        summary.json   per seed and over seeds
        snapshots/     what was believed at some moments, see `explore._storage.snapshots`
        checkpoint/    the state of the run after its latest episodes, see `explore._storage.checkpoints`
        .lock          held by the process that runs it

JSON files are replaced whole or not at all; rows of `episodes.csv` are appended as the run goes, and
those that a checkpoint does not know of are cut when the run is resumed from it.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from explore._storage import files
from explore._storage.checkpoints import Checkpoints
from explore._storage.episodes_csv import EVERY_RUN, Rows
from explore._storage.snapshots import Snapshots
from explore.errors import FolderTaken, RunFailed, UserError
from explore.tasks import TaskDescription

if TYPE_CHECKING:
    from explore.interfaces import Judge

FORMAT = 3
BEFORE_IT_BEGINS = {".lock", "config.gin", "episodes.csv"}
"""All that a folder can hold of a run that was killed before it had a `run.json`."""


class Run:
    """A run, recorded (`Run.create`, `Run.open_for_resume`) or read (`Run.open`); it is read afresh each time."""

    def __init__(self, folder: Path, info: dict[str, Any], lock: files.Lock | None = None, quiet: bool = False):
        self.folder = folder
        self.info = info  # what `run.json` holds
        self.quiet = quiet
        self.resumed_after = 0  # the episode after which this process took it up
        self.checkpoints = Checkpoints(folder / "checkpoint")
        self.snapshots = Snapshots(folder / "snapshots", len(info["seeds"]))
        self._lock = lock
        self.rows = Rows(folder / "episodes.csv", info["columns"])

    @classmethod
    def create(
        cls,
        folder: Path | None,
        *,
        name: str,
        config: str,
        task: TaskDescription,
        columns: Sequence[str],
        seeds: Sequence[int],
        episodes: int,
        provenance: Mapping[str, Any],
        notes: Sequence[str] = (),
        quiet: bool = False,
    ) -> Run:
        """A run in a new folder: the given one, or the first free of `runs/NAME`, `runs/NAME-2`, ..."""
        info = {
            "format": FORMAT,
            "name": name,
            "task": task.to_json(),
            "status": "running",
            "reason": None,
            "started": _now(),
            "finished": None,
            "seconds": None,
            "seeds": list(seeds),
            "episodes": episodes,
            "columns": list(columns),
            "notes": list(notes),
            **provenance,
            "resumed": [],
        }
        with ExitStack() as undo:
            try:
                place = _make_folder(folder, name, undo)
                lock = files.Lock(place)
                lock.acquire()
                undo.callback(lock.release)
                _check_free(place)  # once more: another may have had it while we waited for the lock
                undo.callback((place / ".lock").unlink)
                run = cls(place, info, lock, quiet)
                undo.callback(_remove_files, place, ("config.gin", "episodes.csv", "run.json"))
                files.write(place / "config.gin", config)
                run.rows.cut(None)
                files.write(place / "run.json", _json(info))
            except OSError as error:
                raise UserError(
                    f"cannot write the run folder {folder or Path('runs', name)}: {error.strerror}; "
                    "choose another with --out"
                ) from error
            undo.pop_all()
        return run

    @classmethod
    def open(cls, folder: Path) -> Run:
        """The run recorded in a folder, over or not."""
        folder = Path(folder)
        if not os.path.isdir(folder):
            raise UserError(f"there is no run folder {folder}{_nearest(folder)}")
        if not os.path.exists(folder / "run.json"):
            raise UserError(f"{folder} is not the folder of a run: it has no run.json")
        info = _read_json(folder / "run.json")
        if info.get("format") != FORMAT:
            found = info.get("format")
            raise UserError(f"{folder / 'run.json'} has format {found!r}, this version reads {FORMAT}")
        for name, fits in INFO.items():
            if not fits(info.get(name)):
                raise UserError(f"{folder / 'run.json'} is damaged: {name} is {str(info.get(name))[:40]!r}")
        try:
            TaskDescription.from_json(info.get("task"))
        except ValueError as error:
            raise UserError(f"{folder / 'run.json'} is damaged: {error}") from error
        return cls(folder, info)

    @classmethod
    def open_for_resume(cls, folder: Path, quiet: bool = False) -> Run:
        """A run to go on with; nothing is changed before `resume`."""
        run = cls.open(folder)
        run.quiet, run._lock = quiet, files.Lock(run.folder)
        try:
            run._lock.acquire()
        except OSError as error:
            raise RunFailed(f"cannot go on with {folder}: {error.strerror}") from error
        run.info = cls.open(folder).info  # whoever held the lock may have changed it
        return run

    def resume(
        self,
        after: int,
        rows: Mapping[str, Any] | None,
        *,
        config: str,
        episodes: int,
        provenance: Mapping[str, Any],
        forced: Sequence[str] = (),
    ) -> None:
        """Goes on after an episode: whatever came later is removed, rows that its checkpoint does not have too."""
        self.resumed_after = after
        resumed = {"at": _now(), "after_episode": after, "command": provenance["command"], "forced": list(forced)}
        if forced or rows is None:
            self.info |= {**provenance, "command": self.info.get("command")}
        self.info |= {"status": "running", "reason": None, "finished": None, "seconds": None, "episodes": episodes}
        self.info["resumed"] = [*self.info["resumed"], resumed]
        try:
            self.checkpoints.remove_after(after)
            self.snapshots.remove_after(after)
            self.rows.cut(rows)
            (self.folder / "summary.json").unlink(missing_ok=True)  # it is of an end that is none any more
            if config != self.config:
                files.write(self.folder / "config.gin", config)
            files.write(self.folder / "run.json", _json(self.info))
        except OSError as error:
            raise RunFailed(f"cannot write to {self.folder}: {error.strerror}") from error

    def close(self) -> None:
        """Lets others have the folder."""
        if self._lock is not None:
            self._lock.release()

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.status})"

    @property
    def status(self) -> str:
        """One of "running", "done", "interrupted", "failed", and "killed": nobody runs it, yet it did not end."""
        status = self.info["status"]
        return "killed" if status == "running" and not files.is_locked(self.folder) else status

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends rows to `episodes.csv`."""
        self.rows.add(rows)

    def add_snapshot(self, episode: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Adds what was believed after an episode."""
        try:
            self.snapshots.write(episode, arrays)
        except OSError as error:
            raise RunFailed(f"cannot write to {self.snapshots.folder}: {error.strerror}") from error

    def finish(
        self, status: str, summary: Mapping[str, Any], reason: str | None = None, seconds: float | None = None
    ) -> None:
        """Ends the recording with `summary.json` and the status: "done", "interrupted" or "failed"."""
        self.info |= {"status": status, "reason": reason, "finished": _now(), "seconds": seconds}
        texts = {"summary.json": _json(summary), "run.json": _json(self.info)}
        try:
            for name in texts if status == "done" else reversed(texts):  # whatever is done has a summary
                files.write(self.folder / name, texts[name])
        except OSError as error:
            raise RunFailed(f"cannot write the summary to {self.folder}: {error.strerror}") from error

    @property
    def task(self) -> str:
        """The name of the environment."""
        return self.info["task"]["name"]

    @property
    def description(self) -> TaskDescription:
        """What the environment says of the task."""
        return TaskDescription.from_json(self.info["task"])

    @property
    def config(self) -> str:
        """The complete configuration, in gin."""
        return files.read_text(self.folder / "config.gin")

    @property
    def summary(self) -> dict[str, Any]:
        """What `summarise` made of the run when it ended."""
        return _read_json(self.folder / "summary.json")

    @property
    def episodes(self) -> dict[str, np.ndarray]:
        """The columns of `episodes.csv`: floats, NaN where empty; strings where not all are numbers."""
        return self.rows.read(whole=self.info["status"] == "done")


def summarise(
    judges: Mapping[int, Judge], *, task: str, steps: int, cost: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """The content of `summary.json`: what each seed's judge says, and the same over seeds.

    A seed that has not solved its task is a censored observation: it counts as slower than any
    other in `median_solved_at`, which is None if the median seed is among them. Mean, min and max
    are given of the entries that are numbers for every seed. Where nobody says when the task is
    solved, `share_solved` is None.
    """
    seeds = {str(seed): _plain(judge.summary()) for seed, judge in judges.items()}
    entries = {key: [seed.get(key) for seed in seeds.values()] for seed in seeds.values() for key in seed}
    solved_at = [seed.get("solved_at") or math.inf for seed in seeds.values()]
    decided = any(judge.decides for judge in judges.values())
    numbers = {
        key: [+value for value in values]  # + turns True into 1
        for key, values in entries.items()
        if all(isinstance(value, int | float) for value in values)
    }
    overall = {
        "seeds": len(seeds),
        "share_solved": statistics.fmean(map(math.isfinite, solved_at)) if decided else None,
        "median_solved_at": statistics.median(solved_at),
        "steps": steps,
        "cost": dict(cost or {}),
        "mean": {key: statistics.fmean(values) for key, values in numbers.items()},
        "min": {key: min(values) for key, values in numbers.items()},
        "max": {key: max(values) for key, values in numbers.items()},
    }
    return {"task": task, "seeds": seeds, "overall": _plain(overall)}


def _make_folder(folder: Path | None, name: str, undo: ExitStack) -> Path:
    """Makes the given folder, or the first free one of the name.

    A given one may exist if it is empty, or as good as: a run was killed in it before it began.
    """
    numbered = (Path("runs", name if n == 1 else f"{name}-{n}") for n in count(1))
    for candidate in [folder] if folder else numbered:
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


def _remove_files(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # another process may have put a run there
        folder.rmdir()


def _check_free(folder: Path) -> None:
    """Raises `UserError` unless a folder is empty, or holds only what is left of a run that never began."""
    names = {file.name for file in folder.iterdir() if file.suffix != ".part"} if folder.is_dir() else {"a file"}
    if "run.json" in names:
        raise FolderTaken(f"{folder} holds a run already; go on with it with --resume, or choose another with --out")
    if names and not ".lock" in names <= BEFORE_IT_BEGINS:
        raise UserError(f"the run folder {folder} exists already; choose another with --out")


def _is_list(of: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(type(entry) is of for entry in value)


INFO: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str),
    "status": lambda value: value in ("running", "done", "interrupted", "failed"),
    "seeds": lambda value: _is_list(int)(value) and bool(value),
    "episodes": lambda value: type(value) is int,
    "columns": lambda value: _is_list(str)(value) and value[: len(EVERY_RUN)] == [*EVERY_RUN],
    "notes": _is_list(str),
    "versions": lambda value: isinstance(value, dict),
    "plugins": lambda value: (
        _is_list(dict)(value)
        and all(isinstance(plugin.get(key), str) for plugin in value for key in ("name", "source"))
    ),
    "resumed": _is_list(dict),
}
"""What of `run.json` is relied on when it is read, and how it must look."""


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(files.read_text(path))
        _plain(content)  # which must be possible if it is to be written again
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it holds no JSON object")
    return content


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: numpy's numbers as Python's, None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _nearest(folder: Path) -> str:
    beside = [file.parent.name for file in folder.parent.glob("*/run.json")]
    close = difflib.get_close_matches(folder.name, beside, n=1)
    return f"; did you mean {folder.with_name(close[0])}?" if close else ""
