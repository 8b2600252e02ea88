"""A run and its folder.

    RUN/config.gin     the complete configuration: `explore run RUN/config.gin` repeats the run
        run.json       status, seeds, command line, and the versions of all that took part
        episodes.csv   a row per seed and episode
        summary.json   per seed and over seeds
        checkpoint/    what the agent has learned, when the run is over

JSON files are replaced whole or not at all; rows of `episodes.csv` reach the disk as the run goes.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import os
import platform
import statistics
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from explore import __version__
from explore.errors import RunFailed, UserError

if TYPE_CHECKING:
    from explore.interfaces import Judge

FORMAT = 1
EVERY_RUN = ("seed", "episode", "return", "length", "steps")
"""The first columns of every `episodes.csv`: the episode counts from 1, steps are the seed's total."""
WALL_CLOCK = ("seconds",)
"""The last columns of every `episodes.csv`, the only ones that differ between repeats of a run."""
PACKAGES = ("torch", "numpy", "gin-config", "bsuite", "dm-env", "pluggy")


def episode_columns(agent: Sequence[str], judge: Sequence[str], evaluated: bool) -> tuple[str, ...]:
    """All columns of `episodes.csv`, given the agent's and the judge's own."""
    names = (*EVERY_RUN, *agent, *judge, *(("evaluation",) if evaluated else ()), *WALL_CLOCK)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two columns of episodes.csv are called {name!r}; rename the plugin's")
    return names


class Run:
    """A run, being recorded (`Run.create`) or read (`Run.open`). What is read is read afresh each time."""

    def __init__(self, folder: Path, info: dict[str, Any], quiet: bool = False):
        self.folder = folder
        self.info = info  # what `run.json` holds
        self.quiet = quiet

    @classmethod
    def create(
        cls,
        folder: Path | None,
        *,
        name: str,
        config: str,
        columns: Sequence[str],
        seeds: Sequence[int],
        episodes: int,
        command: list[str],
        plugins: list[dict[str, Any]],
        threads: int = 1,
        quiet: bool = False,
    ) -> Run:
        """A run in a new folder: the given one, or the first free of `runs/NAME`, `runs/NAME-2`, ..."""
        info = {
            "format": FORMAT,
            "name": name,
            "status": "running",
            "reason": None,
            "started": _now(),
            "finished": None,
            "seconds": None,
            "seeds": list(seeds),
            "episodes": episodes,
            "columns": list(columns),
            "command": command,
            "threads": threads,
            "platform": platform.platform(),
            "versions": {"python": platform.python_version(), "explore": __version__}
            | {package: metadata.version(package) for package in PACKAGES},
            "plugins": plugins,
        }
        with ExitStack() as undo:
            try:
                place = _make_folder(folder, name, undo)
                header = _csv(columns, [dict(zip(columns, columns))])
                files = {"config.gin": config, "episodes.csv": header, "run.json": _json(info)}
                for file, text in files.items():
                    _write(place / file, text)
                    undo.callback((place / file).unlink)
            except OSError as error:
                raise UserError(
                    f"cannot write the run folder {folder or Path('runs', name)}: {error.strerror}; "
                    "choose another with --out"
                ) from error
            undo.pop_all()
        return cls(place, info, quiet)

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
        return cls(folder, info)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.status})"

    @property
    def status(self) -> str:
        """One of "running", "done", "interrupted" and "failed"."""
        return self.info["status"]

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends rows to `episodes.csv`, all of them or, if the disk is full, none."""
        path = self.folder / "episodes.csv"
        lines = _csv(self.info["columns"], rows).encode()
        try:
            with path.open("r+b", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                try:
                    while lines:
                        lines = lines[file.write(lines) :]
                except OSError:
                    file.truncate(end)
                    raise
        except OSError as error:
            raise RunFailed(f"cannot write {path}: {error.strerror}") from error

    def finish(
        self, status: str, summary: Mapping[str, Any], reason: str | None = None, seconds: float | None = None
    ) -> None:
        """Ends the recording with `summary.json` and the status: "done", "interrupted" or "failed"."""
        self.info |= {"status": status, "reason": reason, "finished": _now(), "seconds": seconds}
        try:
            try:
                _write(self.folder / "summary.json", _json(summary))
            finally:
                _write(self.folder / "run.json", _json(self.info))
        except OSError as error:
            raise RunFailed(f"cannot write the summary to {self.folder}: {error.strerror}") from error

    def save_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Writes what the agent has learned, plain arrays, to `checkpoint/agent.npz`."""
        path = self.folder / "checkpoint" / "agent.npz"
        arrays = io.BytesIO()
        np.savez(arrays, **weights)  # type: ignore[arg-type]
        try:
            path.parent.mkdir(exist_ok=True)
            _write(path, arrays.getvalue())
        except OSError as error:
            raise RunFailed(f"cannot write {path}: {error.strerror}") from error

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """What the agent had learned in the end."""
        path = self.folder / "checkpoint" / "agent.npz"
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        except FileNotFoundError as error:
            raise UserError(f"{path} is missing: the run is not over, or failed") from error
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(f"{path} is damaged: {error}") from error

    @property
    def config(self) -> str:
        """The complete configuration, in gin."""
        return _read(self.folder / "config.gin")

    @property
    def summary(self) -> dict[str, Any]:
        """What `summarise` made of the run when it ended."""
        return _read_json(self.folder / "summary.json")

    @property
    def episodes(self) -> dict[str, np.ndarray]:
        """The columns of `episodes.csv`: floats, NaN where empty; strings where not all are numbers."""
        path = self.folder / "episodes.csv"
        names = self.info["columns"]
        try:
            header, *rows = [*csv.reader(io.StringIO(_read(path)), strict=True)] or [[]]
        except csv.Error as error:
            raise UserError(f"{path} is damaged: {error}") from error
        if header != names:
            raise UserError(f"{path} is damaged: its columns are not those that run.json lists")
        for line, row in enumerate(rows, start=2):
            if len(row) != len(names):
                raise UserError(f"{path} is damaged: line {line} has {len(row)} cells, not {len(names)}")
        cells = zip(*rows) if rows else [()] * len(names)
        return {name: _array(name, column, path) for name, column in zip(names, cells)}


def summarise(judges: Mapping[int, Judge], *, task: str, steps: int) -> dict[str, Any]:
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
        "mean": {key: statistics.fmean(values) for key, values in numbers.items()},
        "min": {key: min(values) for key, values in numbers.items()},
        "max": {key: max(values) for key, values in numbers.items()},
    }
    return {"task": task, "seeds": seeds, "overall": _plain(overall)}


def _make_folder(folder: Path | None, name: str, undo: ExitStack) -> Path:
    """Makes the given folder, or the first free one of the name; a given one may exist if it is empty."""
    numbered = (Path("runs", name if n == 1 else f"{name}-{n}") for n in count(1))
    for candidate in [folder] if folder else numbered:
        for parent in reversed(candidate.parents):
            if not parent.exists():
                parent.mkdir()
                undo.callback(parent.rmdir)
        try:
            candidate.mkdir()
            undo.callback(candidate.rmdir)
            return candidate
        except FileExistsError:
            if folder and folder.is_dir() and not any(folder.iterdir()):
                return folder
    raise UserError(f"the run folder {folder} exists already; choose another with --out")


def _write(path: Path, content: str | bytes) -> None:
    draft = path.with_name(path.name + ".part")
    try:
        with draft.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: the run is not over, or its folder is damaged") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(_plain(content), indent=2, allow_nan=False) + "\n"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read(path))
    except json.JSONDecodeError as error:
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


def _csv(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """For the CSV writer, which writes a number as the shortest text that reads back the same."""
    if isinstance(value, bool | np.bool_):
        return int(value)
    return None if isinstance(value, float | np.floating) and math.isnan(value) else value


def _array(name: str, cells: Sequence[str], path: Path) -> np.ndarray:
    try:
        return np.array([float(cell) if cell else math.nan for cell in cells])
    except ValueError as error:
        if name in EVERY_RUN + WALL_CLOCK:
            raise UserError(f"{path} is damaged: column {name}: {error}") from error
        return np.array(cells)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _nearest(folder: Path) -> str:
    beside = [file.parent.name for file in folder.parent.glob("*/run.json")]
    close = difflib.get_close_matches(folder.name, beside, n=1)
    return f"; did you mean {folder.with_name(close[0])}?" if close else ""
