"""Snapshots of a run, for pictures: what its agent believed at some moments, and where it had been.

    RUN/snapshots/000000100.npz    after episode 100

Either a map or the best episode of each seed so far, as arrays of numpy; `KINDS` says which, and
`explore._running.visits` makes them. A file may be damaged or a stranger's, and is checked when it is read.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from explore._storage import files
from explore.errors import UserError

NAME = re.compile(r"([0-9]{9,18})\.npz")
LARGEST = 2**30  # bytes of the arrays in a file
HIGHEST = 1e30


class Layout(NamedTuple):
    """The axes of an array, and the kinds of its numbers: "i" integers, "f" floats."""

    axes: tuple[str, ...]
    numbers: str = "if"
    open: bool = False  # further axes may follow

    def fits(self, array: np.ndarray, sizes: dict[str, int]) -> bool:
        """Whether an array has these axes; `sizes` are those of the axes known so far, and gets new ones."""
        if array.ndim < len(self.axes) or (array.ndim > len(self.axes) and not self.open):
            return False
        return array.dtype.kind in self.numbers and all(
            sizes.setdefault(axis, size) == size for axis, size in zip(self.axes, array.shape)
        )


MAP = {"visits": Layout(("seeds", "rows", "columns"))}
BEST_EPISODES = {
    "best_episode": Layout(("seeds",)),
    "best_return": Layout(("seeds",)),
    "lengths": Layout(("seeds",), "i"),
    "observations": Layout(("seeds", "steps"), open=True),
    "actions": Layout(("seeds", "steps")),
    "rewards": Layout(("seeds", "steps")),
}
KINDS = ((MAP, ("seeds", "rows", "columns")), (BEST_EPISODES, ("seeds", "steps")))
"""The arrays of each kind of snapshot, and the axes of its beliefs, all other arrays, before that of the actions."""
NO_BELIEFS = {*MAP, *BEST_EPISODES}


def is_due(episode: int, per_tenfold: int) -> bool:
    """Whether an episode is among those at which as many snapshots are taken whenever episodes grow tenfold."""
    nearest = round(per_tenfold * math.log10(episode))
    return round(10 ** (nearest / per_tenfold)) == episode


class Snapshots:
    """The snapshots of a run with so many seeds, in a folder that is made for the first one."""

    def __init__(self, folder: Path, seeds: int):
        self.folder, self.seeds = folder, seeds

    def write(self, episode: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Add a snapshot, or replace it; raises `OSError`."""
        if not self.folder.is_dir():
            files.make_folder(self.folder)
        files.write(self._path(episode), _archive(arrays))

    def episodes(self) -> list[int]:
        """After which episodes there are snapshots."""
        if self.folder.is_symlink():  # to remove what is in it would be to remove somebody else's
            raise UserError(f"{self.folder} is damaged: it is a link to elsewhere")
        if not self.folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self.folder.iterdir() if (match := NAME.fullmatch(path.name)))

    def read(self, episode: int) -> dict[str, np.ndarray]:
        """The arrays of a snapshot; raises `UserError` if it is damaged."""
        path = self._path(episode)
        try:
            with files.open_file(path) as file:
                arrays = _arrays(file.read(LARGEST))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except Exception as error:  # whatever numpy makes of somebody's bytes
            raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error
        if not _are_a_snapshot(arrays, self.seeds):
            raise UserError(f"{path} is damaged: its arrays are not those of a snapshot of {self.seeds} seeds")
        return arrays

    def remove_after(self, episode: int) -> None:
        """Remove the snapshots of later episodes; raises `OSError`."""
        for later in self.episodes():
            if later > episode:
                self.remove(later)

    def remove(self, episode: int) -> None:
        """Remove the snapshot of an episode, if there is one; raises `OSError`."""
        self._path(episode).unlink(missing_ok=True)

    def _path(self, episode: int) -> Path:
        return self.folder / f"{episode:09d}.npz"


def _archive(arrays: Mapping[str, np.ndarray]) -> memoryview:
    """What `np.savez_compressed` writes, whose parameters differ between versions, and might be names of arrays."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    return content.getbuffer()


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
            raise ValueError(f"it holds more than {LARGEST >> 20} MiB")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _are_a_snapshot(arrays: Mapping[str, np.ndarray], seeds: int) -> bool:
    """Whether arrays are all those of one kind of snapshot, fit together, and can be drawn."""
    known, places = KINDS["visits" not in arrays]
    sizes = {"seeds": seeds}
    layouts = {name: known.get(name) or Layout((*places, f"actions of {name}")) for name in (*known, *arrays)}
    return (
        known.keys() <= arrays.keys()
        and all(layout.fits(arrays[name], sizes) for name, layout in layouts.items())
        and all(size > 0 for axis, size in sizes.items() if axis.startswith("actions of"))
        and not any((np.abs(array.astype(float)) > HIGHEST).any() for array in arrays.values())  # NaN may be there
        and ("lengths" not in known or 0 <= arrays["lengths"].min() <= arrays["lengths"].max() <= sizes["steps"])
    )
