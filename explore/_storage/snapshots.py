"""Moments of a run, for pictures: what its agent believed, and where it had been.

    RUN/snapshots/000000100.npz    after episode 100

Either a map or the best episode of each seed so far, see `explore._running.visits`; arrays for numpy, the
first axis that of the seeds. A file may be damaged or a stranger's, and is checked when it is read.
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
MAP = {"visits": 3}
BEST_EPISODES = {"best_episode": 1, "best_return": 1, "lengths": 1, "actions": 2, "rewards": 2}
"""Arrays of the two kinds of snapshots, and how many axes they have. All others but `observations` are beliefs."""


def is_due(episode: int, per_tenfold: int) -> bool:
    """Whether an episode is among those at which as many snapshots are taken whenever episodes grow tenfold."""
    nearest = round(per_tenfold * math.log10(episode))
    return round(10 ** (nearest / per_tenfold)) == episode


class Snapshots:
    """Those of a run with so many seeds, in a folder that is made for the first."""

    def __init__(self, folder: Path, seeds: int):
        self.folder, self.seeds = folder, seeds

    def write(self, episode: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Adds one, or replaces it; raises `OSError`."""
        if not self.folder.is_dir():
            files.make_folder(self.folder)
        files.write(self._path(episode), _archive(arrays))

    def episodes(self) -> list[int]:
        """After which episodes there are some."""
        if self.folder.is_symlink():  # to remove what is in it would be to remove somebody else's
            raise UserError(f"{self.folder} is damaged: it is a link to elsewhere")
        if not self.folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self.folder.iterdir() if (match := NAME.fullmatch(path.name)))

    def read(self, episode: int) -> dict[str, np.ndarray]:
        """The arrays of one; raises `UserError` if it is damaged."""
        path = self._path(episode)
        try:
            with files.open_file(path) as file:
                arrays = _arrays(file.read(LARGEST))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except Exception as error:  # whatever numpy makes of somebody's bytes
            raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error
        if not _fits(arrays, self.seeds):
            raise UserError(f"{path} is damaged: its arrays are not those of a snapshot of {self.seeds} seeds")
        return arrays

    def remove_after(self, episode: int) -> None:
        """Forgets those of later episodes; raises `OSError`."""
        for later in self.episodes():
            if later > episode:
                self.remove(later)

    def remove(self, episode: int) -> None:
        """Forgets that of an episode, if there is one; raises `OSError`."""
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


def _are_numbers(array: np.ndarray) -> bool:
    """Whether they can be drawn; NaN is none of them, and may be there."""
    return array.dtype.kind in "if" and not (np.abs(array.astype(float)) > HIGHEST).any()


def _fits(arrays: Mapping[str, np.ndarray], seeds: int) -> bool:
    """Whether arrays are those of a map or of best episodes: kinds of numbers, axes and their lengths."""
    axes = MAP if "visits" in arrays else BEST_EPISODES
    if not axes.keys() <= arrays.keys() or not all(map(_are_numbers, arrays.values())):
        return False
    if any(arrays[name].ndim != count for name, count in axes.items()):
        return False
    places = arrays["visits" if axes is MAP else "actions"].shape
    beliefs = [array for name, array in arrays.items() if name not in axes and name != "observations"]
    fits = [array.ndim == len(places) + 1 and array.shape[:-1] == places and array.shape[-1] for array in beliefs]
    if axes is MAP:
        return places[0] == seeds and all(fits)
    observations = arrays.get("observations", np.zeros(()))
    others = [*(arrays[name].shape for name in axes), observations.shape]
    lengths = arrays["lengths"]
    return (
        all(shape[:1] == (seeds,) and shape[1:2] in ((), places[1:2]) for shape in others)
        and lengths.dtype.kind == "i"
        and lengths.min() >= 0
        and lengths.max() <= places[1]
        and all(fits)
    )
