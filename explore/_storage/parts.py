"""The parts of a run to which seeds were added: runs of some of its seeds each, in folders of their own.

    RUN/parts/1/    the run as it was, with its checkpoints
              2/    the seeds that were added first, ...

All else in RUN is put together from them, so this can be done again if it is interrupted.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from pathlib import Path

import numpy as np

from explore._storage import files
from explore._storage.run_folder import Run
from explore._storage.snapshots import BEST_EPISODES
from explore.errors import UserError

FILES = ("config.gin", "run.json", "summary.json", "episodes.csv")
FOLDERS = ("snapshots", "checkpoint", "checkpoint/chunks")


def list_parts(folder: Path) -> list[Run]:
    """The parts of a run that have begun; none if no seeds were added to it. Raises `UserError`."""
    parts = folder / "parts"
    if parts.is_symlink():  # files of another folder would be changed
        raise UserError(f"{parts} is damaged: it is a link to elsewhere")
    numbered = (parts / str(number) for number in count(1))
    return [*map(Run.open, takewhile(lambda part: (part / "run.json").exists(), numbered))]


def make_first_part(run: Run) -> None:
    """Copies a run to the first of its parts, unless it has parts; files that are never changed are linked.

    Raises `OSError`; the run stays as it is.
    """
    if list_parts(run.folder):
        return
    place = run.folder / "parts.part"  # renamed when it is whole
    shutil.rmtree(place, ignore_errors=True)
    first = place / "1"
    for folder in (place, first):
        folder.mkdir()
    for name in FILES:
        files.place(first / name, files.read(run.folder / name))
    for name in FOLDERS:
        if (run.folder / name).is_dir():
            (first / name).mkdir()
            for path in filter(Path.is_file, (run.folder / name).iterdir()):
                _link(path, first / name / path.name)
            files.sync_folder(first / name)
    for folder in (first, place):
        files.sync_folder(folder)
    files.crash_point("first part: copied")
    os.replace(place, run.folder / "parts")
    files.sync_folder(run.folder)
    files.crash_point("first part: renamed")


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path, target, follow_symlinks=False)
    except OSError:  # not every file system has links
        files.place(target, files.read(path, links=False))


def merge_rows(parts: Sequence[Run]) -> str:
    """The `episodes.csv` of all seeds; its `seconds` are those of all parts. Raises `UserError`."""
    tables = [_read_rows(part) for part in parts]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(parts[0].info["columns"])
    for blocks in zip(*tables, strict=True):
        seconds = round(sum(float(block[0][-1]) for block in blocks), 3)
        writer.writerows([*row[:-1], seconds] for block in blocks for row in block)
    return text.getvalue()


def _read_rows(part: Run) -> list[list[list[str]]]:
    """The rows of each episode."""
    path, seeds, episodes = part.folder / "episodes.csv", part.info["seeds"], part.info["episodes"]
    try:
        header, *rows = csv.reader(io.StringIO(files.read_text(path)), strict=True)
    except (csv.Error, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    expected = [[str(seed), str(episode + 1)] for episode in range(episodes) for seed in seeds]
    if header != part.info["columns"] or [row[:2] for row in rows] != expected:
        raise UserError(f"{path} is damaged: it has not {episodes} episodes of each seed")
    return [rows[first : first + len(seeds)] for first in range(0, len(rows), len(seeds))]


def merge_snapshots(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of a snapshot of all seeds, given those of each part; see `explore._running.visits`."""
    if "visits" in parts[0]:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    lengths = np.concatenate([part["lengths"] for part in parts])
    beyond = np.arange(lengths.max()) >= lengths[:, None]
    merged = {}
    for name, first in parts[0].items():
        if BEST_EPISODES.get(name) == ("seeds",):
            merged[name] = np.concatenate([part[name] for part in parts])
            continue
        whole = np.zeros((*beyond.shape, *first.shape[2:]), first.dtype)
        for part, rows in zip(parts, np.split(whole, np.cumsum([len(part[name]) for part in parts])[:-1])):
            rows[:, : part[name].shape[1]] = part[name]
        rest = {"observations": whole[lengths.argmax()], "actions": np.array(-1)}.get(name, np.array(np.nan))
        whole[beyond] = np.broadcast_to(rest, whole.shape)[beyond]
        merged[name] = whole
    return merged
