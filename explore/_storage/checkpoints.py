"""The state of a run on disk, written so often that most of it must not be written again.

    checkpoint/000000200.state   the state after episode 200: a tree, and the ends of its arrays
               000000100.state   the one before
               chunks/SHA256     1 MiB of an array, named by its content

Arrays are cut into chunks. One that did not change since the last time, as most of a replay buffer
did not, is there already under its name. Two states are kept; chunks that neither names are removed.

A state is three lines and a blob: `explore checkpoint 1`, the SHA-256 of all that follows, the tree
as JSON, and what is left of each array after its last whole chunk. It is written last and renamed
into place, so a reader finds the new state whole or the old ones as they were. A file may come from
a stranger: it is read as data, and nothing in it is believed before it is checked.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from explore._storage import files

Tree = Any
"""None, bool, int, finite float, str, list[Tree], dict[str, Tree] or an array."""

FORMAT = 1
CHUNK = 2**20  # bytes; a part of the format
ALIGNMENT = 64  # bytes, of the arrays in the blob
ARRAY = "$array"
DIMENSIONS = 32  # the most that every numpy can have
STATE_NAME = re.compile(r"([0-9]{9,18})\.state")
CHUNK_NAME = re.compile(r"[0-9a-f]{64}")
DTYPE = re.compile(r"[<|][biufc][1-9][0-9]{0,7}")


class Damaged(Exception):
    """A checkpoint cannot be read. One line: what is wrong with which file."""


class Checkpoints:
    """The checkpoints in a folder, which is made when the first is written."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.chunks = self.folder / "chunks"
        self._named: dict[int, frozenset[str]] = {}  # episode -> the chunks of its state, where known
        self._sound: set[str] = set()  # chunks whose content is known to be right

    def write(self, episode: int, tree: Tree) -> None:
        """Adds a state, and keeps of the others only the last before it. Raises `OSError`.

        After a failure the others are as they were, and the new one is whole or gone.
        """
        path = self._path(episode)
        for folder in (self.folder, self.chunks):
            if not folder.is_dir():
                files.make_folder(folder)
        self._named.pop(episode, None)
        draft = _Draft(self._write_chunk)
        try:
            content = draft.content(tree)
            files.sync_folder(self.chunks)
            files.crash_point("chunks synced")
            files.write(path, *content)
        except BaseException:
            with suppress(OSError):
                self._sweep(self._states())
            raise
        self._named[episode] = frozenset(draft.chunks)
        before = [other for other in self._states() if other < episode and self._chunks_of(other) is not None]
        self._sweep([episode, *before[:1]])

    def episodes(self) -> list[int]:
        """After which episodes there are states, whole or not; the newest first."""
        for folder in (self.folder, self.chunks):
            if folder.is_symlink():  # to go on would remove files of whoever it leads to
                raise Damaged(f"{folder} is damaged: it is a link to elsewhere")
        with _reading(self.folder):
            return self._states()

    def read(self, episode: int) -> Tree:
        """A state, of which every byte was checked; its arrays are `StoredArray`s. Raises `Damaged`."""
        path = self._path(episode)
        with _reading(path):
            tree, chunks = _Parser(path, self.chunks).parse()
        self._sound -= chunks  # they may have been damaged since
        for name in chunks:
            _load_chunk(self.chunks / name)
            self._sound.add(name)
        self._named[episode] = chunks
        return tree

    def remove_after(self, episode: int) -> None:
        """Forgets the states of later episodes. Raises `OSError`."""
        states = self._states()
        if states:
            self._sweep([other for other in states if other <= episode])
            files.sync_folder(self.folder)

    def _path(self, episode: int) -> Path:
        return self.folder / f"{episode:09d}.state"

    def _states(self) -> list[int]:
        matches = map(STATE_NAME.fullmatch, _names(self.folder))
        episodes = {int(match[1]) for match in matches if match}
        return sorted((episode for episode in episodes if os.path.lexists(self._path(episode))), reverse=True)

    def _chunks_of(self, episode: int) -> frozenset[str] | None:
        """The chunks that a state names; None if it is damaged."""
        if episode not in self._named:
            try:
                _, self._named[episode] = _Parser(self._path(episode), self.chunks).parse()
            except Damaged:
                return None
        return self._named[episode]

    def _write_chunk(self, name: str, content: memoryview) -> None:
        path = self.chunks / name
        try:
            if name not in self._sound:
                _load_chunk(path)
            found = os.lstat(path)
            is_there = stat.S_ISREG(found.st_mode) and found.st_size == CHUNK
        except (OSError, Damaged):
            is_there = False
        if not is_there:
            files.place(path, content)
        self._sound.add(name)

    def _sweep(self, kept: Iterable[int]) -> None:
        """Removes all states but these, the chunks that none of these names, and what a crash left half written."""
        kept = set(kept)
        for episode in self._states():
            if episode not in kept:
                _remove(self._path(episode))
                self._named.pop(episode, None)
        named: set[str] = set().union(*(self._chunks_of(episode) or () for episode in kept))
        for name in _names(self.folder):
            if STATE_NAME.fullmatch(name.removesuffix(".part")) and name.endswith(".part"):
                _remove(self.folder / name)
        for name in _names(self.chunks):
            if CHUNK_NAME.fullmatch(name.removesuffix(".part")) and name not in named:
                _remove(self.chunks / name)
                self._sound.discard(name)


class StoredArray:
    """An array on disk, loaded when numpy asks for it: `np.asarray(stored)`."""

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], chunks: list[Path], tail: bytes):
        self.dtype, self.shape = dtype, shape
        self._chunks, self._tail = chunks, tail

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a stored array is loaded, which makes a copy")
        array = np.empty(self.shape, self.dtype)
        flat = array.reshape(-1).view(np.uint8)
        flat[len(self._chunks) * CHUNK :] = np.frombuffer(self._tail, np.uint8)
        for number, path in enumerate(self._chunks):
            flat[number * CHUNK : (number + 1) * CHUNK] = np.frombuffer(_load_chunk(path), np.uint8)
        if self.dtype == bool:
            np.minimum(flat, 1, out=flat)  # a byte above 1 is no bool to numpy
        return array if dtype is None else array.astype(dtype, copy=False)


def _load_chunk(path: Path) -> bytes:
    """A chunk, checked. Raises `Damaged`."""
    with _reading(path):
        content = _read(path, CHUNK + 1)  # a byte more, which there should not be
    if hashlib.sha256(content).hexdigest() != path.name:
        raise Damaged(f"{path} is damaged: its content does not match its checksum")
    return content


class _Draft:
    """A state in the making: its chunks are written while the tree is walked, the rest is collected."""

    def __init__(self, write_chunk: Callable[[str, memoryview], None]):
        self.chunks: set[str] = set()
        self._write_chunk = write_chunk
        self._blob: list[bytes | memoryview] = []
        self._length = 0  # of the blob

    def content(self, tree: Tree) -> list[bytes | memoryview]:
        """The content of the state's file."""
        manifest = json.dumps(self._plain(tree), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        digest = hashlib.sha256(manifest)
        for piece in self._blob:
            digest.update(piece)
        return [f"explore checkpoint {FORMAT}\n{digest.hexdigest()}\n".encode(), manifest, *self._blob]

    def _plain(self, tree: Tree) -> Any:
        if tree is None or isinstance(tree, bool | int | float | str):
            return tree
        if isinstance(tree, list):
            return [self._plain(entry) for entry in tree]
        if isinstance(tree, dict):
            for key in tree:
                if not isinstance(key, str) or key == ARRAY:
                    raise TypeError(f"a checkpoint cannot hold a dict with the key {key!r}")
            return {key: self._plain(entry) for key, entry in tree.items()}
        if isinstance(tree, np.ndarray):
            return {ARRAY: self._array(tree)}
        raise TypeError(f"a checkpoint cannot hold a {type(tree).__name__}")

    def _array(self, array: np.ndarray) -> dict[str, Any]:
        dtype = array.dtype.newbyteorder("<")
        if not DTYPE.fullmatch(dtype.str) or array.ndim > DIMENSIONS:
            raise TypeError(f"a checkpoint cannot hold an array of {dtype} with {array.ndim} dimensions")
        names = []
        for piece in _cut(array.astype(dtype, copy=False)):
            if piece.nbytes == CHUNK:
                names.append(hashlib.sha256(piece).hexdigest())
                self._write_chunk(names[-1], piece)
        self.chunks.update(names)
        padding = -self._length % ALIGNMENT
        start = self._length + padding
        self._blob += [bytes(padding), piece]
        self._length = start + piece.nbytes
        return {"dtype": dtype.str, "shape": list(array.shape), "chunks": names, "tail": [start, piece.nbytes]}


def _cut(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array: whole chunks, and last the rest, which may be empty."""
    piecewise = not array.flags.c_contiguous and CHUNK % array.itemsize == 0
    flat = array.flat if piecewise else np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    step = CHUNK // array.itemsize if piecewise else CHUNK
    for start in range(0, array.nbytes // CHUNK * step + 1, step):
        yield flat[start : start + step].view(np.uint8).data


class _Parser:
    """Reads and checks the file of a state; of its chunks only the names."""

    def __init__(self, path: Path, folder: Path):
        self._path, self._folder = path, folder
        self._chunks: set[str] = set()
        self._blob = b""

    def parse(self) -> tuple[Tree, frozenset[str]]:
        """The tree, and all chunks that its arrays are made of. Raises `Damaged`, and `OSError`."""
        version, checksum, content = [*_read(self._path).split(b"\n", 2), b"", b""][:3]
        match = re.fullmatch(rb"explore checkpoint ([0-9]{1,90})", version)
        if not match:
            raise self._damaged("it does not begin like a checkpoint")
        if (found := match[1].decode()) != str(FORMAT):
            raise Damaged(f"{self._path} was written by another version: its format is {found}, not {FORMAT}")
        if checksum != hashlib.sha256(content).hexdigest().encode():
            raise self._damaged("its content does not match its checksum")
        manifest, _, self._blob = content.partition(b"\n")
        try:
            tree = self._parse(json.loads(manifest.decode()))
        except RecursionError:
            raise self._damaged("its tree is too deep") from None
        except ValueError as error:
            raise self._damaged(f"its tree is not JSON: {error}") from error
        return tree, frozenset(self._chunks)

    def _parse(self, plain: Any) -> Tree:
        if isinstance(plain, list):
            return [self._parse(entry) for entry in plain]
        if isinstance(plain, dict):
            return self._array(plain) if ARRAY in plain else {key: self._parse(entry) for key, entry in plain.items()}
        if isinstance(plain, float) and not math.isfinite(plain):
            raise self._damaged("its tree holds a number that is not finite")
        return plain

    def _array(self, plain: dict[str, Any]) -> StoredArray:
        match plain:
            case {"$array": {"dtype": str(text), "shape": list(shape), "chunks": list(names), "tail": [start, length]}}:
                dtype = self._dtype(text)
            case _:
                raise self._damaged("an array is not described as one")
        if len(shape) > DIMENSIONS or any(type(size) is not int or size < 0 for size in (*shape, start, length)):
            raise self._damaged("an array's shape or place is no row of natural numbers")
        if not all(isinstance(name, str) and CHUNK_NAME.fullmatch(name) for name in names):
            raise self._damaged("a chunk's name is not a SHA-256")
        if start + length > len(self._blob):
            raise self._damaged("an array lies beyond its end")
        if len(names) * CHUNK + length != math.prod(shape) * dtype.itemsize:
            raise self._damaged("an array's shape does not fit its bytes")
        if math.prod(size or 1 for size in shape) * dtype.itemsize >= 2**63:  # numpy leaves out zeros, too
            raise self._damaged("an array's shape is too large")
        self._chunks.update(names)
        paths = [self._folder / name for name in names]
        return StoredArray(dtype, tuple(shape), paths, self._blob[start : start + length])

    def _dtype(self, text: str) -> np.dtype:
        with suppress(TypeError):
            if DTYPE.fullmatch(text) and np.dtype(text).str == text:
                return np.dtype(text)
        raise self._damaged(f"an array's dtype is {text[:20]!r}")

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"{self._path} is damaged: {what}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Makes of an `OSError` in reading a file or folder a `Damaged`."""
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged(f"{path} is missing") from error
    except OSError as error:
        raise Damaged(f"cannot read {path}: {error.strerror}") from error


def _read(path: Path, size: int = -1) -> bytes:
    """The content of a file. Raises `OSError`, and `Damaged` for a folder, a pipe or a link to elsewhere."""
    try:
        with files.open_file(path, links=False) as file:
            return file.read(size)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ELOOP):
            raise Damaged(f"{path} is damaged: it is not a file") from error
        raise


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


def _remove(path: Path) -> None:
    if not path.is_dir() or path.is_symlink():  # no folder is one of ours
        path.unlink()
        files.crash_point(f"{path.name} removed")
