"""A run, read from its folder.

    RUN/config.gin     the complete configuration: `explore run RUN/config.gin` repeats the run
        run.json       status, seeds, command line, and the versions of everything that took part
        episodes.csv   a row per seed and episode
        summary.json   per seed and over seeds
        snapshots/     what was believed at some moments, see `explore._storage.snapshots`
        checkpoint/    the state of the run after its latest episodes, see `explore._storage.checkpoints`
        .lock          held by the process that runs it

`explore._storage.run_writer` writes it. A file may be damaged or a stranger's, and is checked when it is read.
"""

from __future__ import annotations

import difflib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from explore._storage import files
from explore._storage.checkpoints import Checkpoints
from explore._storage.episodes_csv import EVERY_RUN, EpisodesFile
from explore._storage.snapshots import Snapshots
from explore.errors import UserError
from explore.tasks import TaskDescription

FORMAT = 3


class Run:
    """A run, going on or over: `Run.open(folder)`. Files are read afresh each time they are asked for.

    Attributes:
      folder: where it is.
      info: the content of `run.json`.
      quiet: whether it was started with `--quiet`.
      resumed_after: the episode after which this process resumed it, else 0.
      snapshots: what was recorded for pictures: `snapshots.episodes()` and `snapshots.read(episode)`.
      checkpoints: its stored states: `checkpoints.episodes()` and `checkpoints.read(episode)`.
    """

    def __init__(self, folder: Path, info: dict[str, Any], quiet: bool = False):
        self.folder, self.info, self.quiet = folder, info, quiet
        self.resumed_after = 0
        self.checkpoints = Checkpoints(folder / "checkpoint")
        self.snapshots = Snapshots(folder / "snapshots", len(info["seeds"]))

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """The run in a folder; raises `UserError`."""
        folder = Path(folder)
        if not os.path.isdir(folder):
            raise UserError(f"there is no run folder {folder}{_suggest_run(folder)}")
        if not os.path.exists(folder / "run.json"):
            raise UserError(f"{folder} is not the folder of a run: it has no run.json")
        return cls(folder, read_info(folder))

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.status})"

    @property
    def status(self) -> str:
        """One of "running", "done", "interrupted", "failed", and "killed": no process runs it, yet it did not end."""
        status = self.info["status"]
        return "killed" if status == "running" and not files.is_locked(self.folder) else status

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
    def execution(self) -> str:
        """What executes the agent, such as "native kernels (avx512)"; empty if `run.json` does not say."""
        return describe_execution(self.info.get("execution", {}))

    @property
    def summary(self) -> dict[str, Any]:
        """The content of `summary.json`: of each seed, and over seeds. Written when the run ends."""
        return _read_json(self.folder / "summary.json")

    @property
    def episodes(self) -> dict[str, np.ndarray]:
        """The columns of `episodes.csv`: floats, NaN where empty; strings where not all are numbers."""
        file = EpisodesFile(self.folder / "episodes.csv", self.info["columns"])
        return file.read(whole=self.info["status"] == "done")


def describe_execution(execution: Mapping[str, str]) -> str:
    """What `Agent.execution` returns, in words: "native kernels (avx512); PyTorch for updates: ..."."""

    def describe(name: str, remark: str) -> str:
        return f"{name}: {remark}" if " " in remark else f"{name} ({remark})" if remark else name

    return "; ".join(describe(name, remark) for name, remark in execution.items())


def read_info(folder: Path) -> dict[str, Any]:
    """The content of `run.json`, checked."""
    path = folder / "run.json"
    info = _read_json(path)
    if info.get("format") != FORMAT:
        raise UserError(f"{path} has format {info.get('format')!r}, this version reads {FORMAT}")
    for name, fits in INFO.items():
        if not fits(info.get(name)):
            raise UserError(f"{path} is damaged: {name} is {str(info.get(name))[:40]!r}")
    try:
        TaskDescription.from_json(info.get("task"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    return info


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
    "execution": lambda value: (
        value is None or (isinstance(value, dict) and all(isinstance(remark, str) for remark in value.values()))
    ),
}
"""The entries of `run.json` that readers rely on, and what they must look like."""


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replaces a JSON file as a whole; raises `OSError`."""
    files.write(path, json.dumps(to_json(content), indent=2, allow_nan=False) + "\n")


def to_json(value: Any) -> Any:
    """The value as JSON can hold it: numpy's numbers as Python's, None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): to_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if isinstance(value, np.generic | np.ndarray):
        return to_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(files.read_text(path))
        to_json(content)  # which must be possible if it is to be written again
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it holds no JSON object")
    return content


def _suggest_run(folder: Path) -> str:
    beside = [file.parent.name for file in folder.parent.glob("*/run.json")]
    close = difflib.get_close_matches(folder.name, beside, n=1)
    return f"; did you mean {folder.with_name(close[0])}?" if close else ""
