"""Snapshots of a run, for pictures: what its agent believed at some moments, and where it had been.

    RUN/snapshots/000000100.npz    after episode 100

Either a map or the best episode of each seed so far, as arrays of numpy that
`explore._running.visits` makes. A file may be damaged or a stranger's, and is checked when it is read.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from explore._storage import files
from explore.errors import UserError

NAME = re.compile(r"([0-9]{9,18})\.npz")
LARGEST = 2**30  # bytes of the arrays in a file
HIGHEST = 1e30

MAP = {"visits": ("seeds", "rows", "columns")}
BEST_EPISODES = {
    "best_episode": ("seeds",),
    "best_return": ("seeds",),
    "lengths": ("seeds",),
    "observations": ("seeds", "steps"),  # and those of an observation
    "actions": ("seeds", "steps"),
    "rewards": ("seeds", "steps"),
}
"""The arrays of each kind of snapshot, and their axes; all others are beliefs, at each place or step and action."""
NO_BELIEFS = {*MAP, *BEST_EPISODES, "file", "allow_pickle"}
"""Names that no belief may have; the last two are parameters of numpy's."""


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
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        files.write(self._path(episode), content.getbuffer())

    def episodes(self) -> list[int]:
        """After which episodes there are snapshots."""
        if self.folder.is_symlink():  # what it contains belongs to another folder
            raise UserError(f"{self.folder} is damaged: it is a link to elsewhere")
        if not self.folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self.folder.iterdir() if (match := NAME.fullmatch(path.name)))

    def read(self, episode: int) -> dict[str, np.ndarray]:
        """The arrays of a snapshot; raises `UserError` if it is damaged."""
        path = self._path(episode)
        content = files.read(path, LARGEST)
        try:
            arrays = _load(content)
            _check(arrays, self.seeds)
        except Exception as error:  # numpy may raise anything on damaged bytes
            raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error
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


def _load(content: bytes) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
            raise ValueError(f"it holds more than {LARGEST >> 20} MiB")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _check(arrays: Mapping[str, np.ndarray], seeds: int) -> None:
    """Raises `ValueError` unless arrays are all those of one kind of snapshot, fit together, and can be drawn."""
    known, places = (MAP, MAP["visits"]) if "visits" in arrays else (BEST_EPISODES, BEST_EPISODES["actions"])
    sizes = {"seeds": seeds}

    def fits(name: str, array: np.ndarray) -> bool:
        axes = known.get(name, (*places, f"actions of {name}"))
        shape = array.shape[: len(axes)] if name == "observations" else array.shape
        return (
            array.dtype.kind in ("i" if name == "lengths" else "if")
            and len(shape) == len(axes)
            and all(sizes.setdefault(axis, size) == size for axis, size in zip(axes, shape))
            and (name in known or shape[-1] > 0)
            and not (np.abs(array.astype(float)) > HIGHEST).any()  # NaN may be there
        )

    are_one = known.keys() <= arrays.keys() and all(fits(name, array) for name, array in arrays.items())
    lengths = arrays["lengths"] if are_one and known is BEST_EPISODES else np.zeros(1)
    if not are_one or not 0 <= lengths.min() <= lengths.max() <= sizes.get("steps", 0):
        raise ValueError(f"its arrays are not those of a snapshot of {seeds} seeds")
