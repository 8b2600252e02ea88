"""`episodes.csv`: a row per seed and episode, appended as a run goes, and truncated to those of a checkpoint.

A checkpoint refers to its rows by a mark, their number of bytes and checksum.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from explore._storage import files
from explore.errors import RunFailed, UserError

EVERY_RUN = ("seed", "episode", "return", "length", "steps")
"""The first columns of every `episodes.csv`: the episode counts from 1, steps are the seed's total."""
WALL_CLOCK = ("seconds",)
"""The last columns of every `episodes.csv`, the only ones that differ between repeats of a run."""

Mark = Mapping[str, Any]
"""`{"bytes": ..., "sha256": ...}`"""


def episode_columns(*own: Sequence[str]) -> tuple[str, ...]:
    """All columns of `episodes.csv`, given those of the agent, of the judge and of other measurements."""
    names = (*EVERY_RUN, *chain(*own), *WALL_CLOCK)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two columns of episodes.csv are called {name!r}; rename the plugin's")
    return names


class EpisodesFile:
    """The rows of a run, in a file with these columns."""

    def __init__(self, path: Path, columns: Sequence[str]):
        self.path, self.columns = path, columns
        self.header = format_rows(columns, [{name: name for name in columns}])
        self._digest = hashlib.sha256()  # of all that belongs to the run
        self._size = 0

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Appends rows: all of them or, if the disk is full, none."""
        lines = left = format_rows(self.columns, rows).encode()
        try:
            with files.open_file(self.path, "r+b") as file:
                if file.seek(0, os.SEEK_END) != self._size:
                    raise RunFailed(f"{self.path} was changed by another program during the run")
                try:
                    while left:
                        left = left[file.write(left) :]
                except BaseException:
                    file.truncate(self._size)
                    raise
        except OSError as error:
            raise RunFailed(f"cannot write {self.path}: {error.strerror}") from error
        self._count(lines)

    def mark(self) -> Mark:
        """The mark of all rows so far, which are on the disk when it returns; raises `OSError`."""
        with files.open_file(self.path) as file:
            os.fsync(file.fileno())
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}

    def contains(self, mark: Mark) -> bool:
        """Whether the file begins with the rows of a mark."""
        first = self._first_bytes(mark["bytes"])
        whole = first.startswith(self.header.encode()) and first.endswith(b"\n") and len(first) == mark["bytes"]
        return whole and hashlib.sha256(first).hexdigest() == mark["sha256"]

    def truncate(self, mark: Mark | None) -> None:
        """Keeps only the rows of a mark (None: no row); raises `OSError`."""
        if mark is None:
            files.write(self.path, self.header)
            self._count(self.header.encode())
            return
        with files.open_file(self.path, "r+b") as file:
            self._count(file.read(mark["bytes"]))
            file.truncate(mark["bytes"])

    @property
    def seconds(self) -> float:
        """How long the episodes have taken so far."""
        with suppress(ValueError):  # of the header
            return float(self._first_bytes(self._size).rstrip(b"\n").rpartition(b",")[2])
        return 0.0

    def read(self, whole: bool) -> dict[str, np.ndarray]:
        """The columns. Unless the file is known to be whole, an incomplete last row is left out."""
        text = files.read_text(self.path)
        if not whole:
            text = text[: text.rfind("\n") + 1]
        try:
            header, *rows = [*csv.reader(io.StringIO(text), strict=True)] or [[]]
        except csv.Error as error:
            raise UserError(f"{self.path} is damaged: {error}") from error
        if header != [*self.columns]:
            raise UserError(f"{self.path} is damaged: its columns are not those that run.json lists")
        for line, row in enumerate(rows, start=2):
            if len(row) != len(header):
                raise UserError(f"{self.path} is damaged: line {line} has {len(row)} cells, not {len(header)}")
        cells = zip(*rows) if rows else [()] * len(header)
        return {name: _array(name, column, self.path) for name, column in zip(header, cells)}

    def _first_bytes(self, count: int) -> bytes:
        return files.read(self.path, min(count, self.path.stat().st_size)) if self.path.exists() else b""

    def _count(self, content: bytes) -> None:
        self._digest.update(content)
        self._size += len(content)


def format_rows(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
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
