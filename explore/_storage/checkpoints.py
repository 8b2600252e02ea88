"""The state of a run on disk, written so often that most of it must not be written again.

    checkpoint/000000200.state   the state after episode 200: a tree, and the ends of its arrays
               000000100.state   the one before
               chunks/SHA256     1 MiB of an array, named by its content

Arrays are cut into chunks. One that did not change since the last time, as most of a replay buffer
did not, is there already under its name. Two states are kept; chunks that neither names are removed.

A state is three lines and a blob: `explore checkpoint 2`, the SHA-256 of all that follows, the tree
as JSON, and what is left of each array after its last whole chunk. It is written last and renamed
into place, so a reader finds the new state whole or the old ones as they were. A file may come from
a stranger: it is read as data, and nothing in it is believed before it is checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from explore._storage import files
from explore.errors import UserError

Tree = Any
"""None, bool, int, finite float, str, list[Tree], dict[str, Tree] or an array; no key is "$array"."""

FORMAT = 2
CHUNK = 2**20  # bytes; a part of the format
DIMENSIONS = 32  # the most that every numpy can have
DTYPES = {np.dtype(code).newbyteorder("<").str for code in "?bBhHiIqQefdgFDG"}
STATE_NAME = re.compile(r"([0-9]{9}|[1-9][0-9]{9,17})\.state")
CHUNK_NAME = re.compile(r"[0-9a-f]{64}")


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
        for folder in (self.folder, self.chunks):
            if not folder.is_dir():
                files.make_folder(folder)
        self._named.pop(episode, None)
        try:
            content, chunks = self._write_chunks(tree)
            files.sync_folder(self.chunks)
            files.crash_point("chunks synced")
            files.write(self._path(episode), *content)
        except BaseException:
            with suppress(OSError):
                self._sweep(self._states())
            raise
        self._named[episode] = chunks
        before = [other for other in self._states() if other < episode and self._chunks_of(other) is not None]
        self._sweep([episode, *before[:1]])

    def episodes(self) -> list[int]:
        """After which episodes there are states, whole or not; the newest first."""
        for folder in (self.folder, self.chunks):
            if folder.is_symlink():  # files of another folder would be removed
                raise Damaged(f"{folder} is damaged: it is a link to elsewhere")
        try:
            return self._states()
        except OSError as error:
            raise Damaged(f"cannot read {self.folder}: {error.strerror}") from error

    def read(self, episode: int) -> Tree:
        """A state, of which every byte was checked; its arrays are `StoredArray`s. Raises `Damaged`."""
        tree, chunks = _Parser(self._path(episode), self.chunks).parse()
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
        return sorted((int(match[1]) for match in matches if match), reverse=True)

    def _chunks_of(self, episode: int) -> frozenset[str] | None:
        """The chunks that a state names; None if it is damaged."""
        if episode not in self._named:
            try:
                _, self._named[episode] = _Parser(self._path(episode), self.chunks).parse()
            except Damaged:
                return None
        return self._named[episode]

    def _write_chunks(self, tree: Tree) -> tuple[list[bytes | memoryview], frozenset[str]]:
        """Writes the chunks of a state; returns the content of its own file, and their names."""
        chunks: set[str] = set()
        tails: list[memoryview] = []

        def write_array(array: np.ndarray) -> dict[str, Any]:
            dtype = array.dtype.newbyteorder("<") if isinstance(array, np.ndarray) else None
            if dtype is None or dtype.str not in DTYPES or array.ndim > DIMENSIONS:
                raise TypeError(f"a checkpoint cannot hold a {type(array).__name__} of {dtype}")
            content = np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data
            whole = len(content) // CHUNK * CHUNK
            names = [self._write_chunk(content[start : start + CHUNK]) for start in range(0, whole, CHUNK)]
            chunks.update(names)
            tails.append(content[whole:])
            return {"$array": {"dtype": dtype.str, "shape": array.shape, "chunks": names}}

        manifest = json.dumps(tree, default=write_array, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        digest = hashlib.sha256(manifest)
        for tail in tails:
            digest.update(tail)
        return [f"explore checkpoint {FORMAT}\n{digest.hexdigest()}\n".encode(), manifest, *tails], frozenset(chunks)

    def _write_chunk(self, content: memoryview) -> str:
        """Writes a chunk unless it is there; returns its name."""
        name = hashlib.sha256(content).hexdigest()
        if name not in self._sound:
            try:
                _load_chunk(self.chunks / name)
            except Damaged:
                files.place(self.chunks / name, content)
            self._sound.add(name)
        return name

    def _sweep(self, kept: Sequence[int]) -> None:
        """Removes all states but these, the chunks that none of these names, and what a crash left half written."""
        named = {episode: self._chunks_of(episode) for episode in kept}
        self._remove_others(self.folder, STATE_NAME, {self._path(episode).name for episode in kept})
        self._named = {episode: chunks for episode, chunks in named.items() if chunks is not None}
        if len(self._named) == len(kept):  # else it is unknown which chunks are needed
            chunks = set().union(*self._named.values())
            self._sound &= chunks
            self._remove_others(self.chunks, CHUNK_NAME, chunks)

    def _remove_others(self, folder: Path, pattern: re.Pattern[str], kept: set[str]) -> None:
        for name in _names(folder):
            path = folder / name
            ours = pattern.fullmatch(name.removesuffix(".part")) and (path.is_symlink() or not path.is_dir())
            if ours and name not in kept:
                path.unlink()
                files.crash_point(f"{name} removed")


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


class _Parser:
    """Reads and checks the file of a state; of its chunks only the names."""

    def __init__(self, path: Path, folder: Path):
        self._path, self._folder = path, folder
        self._chunks: set[str] = set()
        self._blob, self._used = b"", 0  # what is left of arrays, one after the other; bytes of those that were read

    def parse(self) -> tuple[Tree, frozenset[str]]:
        """The tree, and all chunks that its arrays are made of. Raises `Damaged`."""
        version, checksum, content = [*_read(self._path).split(b"\n", 2), b"", b""][:3]
        match = re.fullmatch(rb"explore checkpoint ([0-9]{1,90})", version)
        if not match:
            raise self._refuse("it does not begin like a checkpoint")
        if (found := match[1].decode()) != str(FORMAT):
            raise Damaged(f"{self._path} was written by another version: its format is {found}, not {FORMAT}")
        if checksum != hashlib.sha256(content).hexdigest().encode():
            raise self._refuse("its content does not match its checksum")
        manifest, _, self._blob = content.partition(b"\n")
        try:
            return json.loads(manifest.decode(), object_hook=self._read_node), frozenset(self._chunks)
        except RecursionError:
            raise self._refuse("its tree is too deep") from None
        except ValueError as error:
            raise self._refuse(f"its tree is not JSON: {error}") from error

    def _read_node(self, node: dict[str, Any]) -> Tree:
        if "$array" not in node:
            return node
        match node["$array"]:
            case {"dtype": str(dtype), "shape": list(shape), "chunks": list(names)}:
                return self._read_array(dtype, shape, names)
        raise self._refuse("an array is not described as one")

    def _read_array(self, dtype: str, shape: list[Any], names: list[Any]) -> StoredArray:
        if dtype not in DTYPES:
            raise self._refuse(f"an array's dtype is {dtype[:20]!r}")
        if len(shape) > DIMENSIONS or any(type(size) is not int or size < 0 for size in shape):
            raise self._refuse("an array's shape is no row of natural numbers")
        if not all(isinstance(name, str) and CHUNK_NAME.fullmatch(name) for name in names):
            raise self._refuse("a chunk's name is not a SHA-256")
        size = np.dtype(dtype).itemsize
        whole, rest = divmod(math.prod(shape) * size, CHUNK)
        start, self._used = self._used, self._used + rest
        if len(names) != whole or self._used > len(self._blob):
            raise self._refuse("an array's shape does not fit its bytes")
        if math.prod(side or 1 for side in shape) * size >= 2**63:  # numpy leaves out zeros, too
            raise self._refuse("an array's shape is too large")
        self._chunks.update(names)
        paths = [self._folder / name for name in names]
        return StoredArray(np.dtype(dtype), tuple(shape), paths, self._blob[start : self._used])

    def _refuse(self, what: str) -> Damaged:
        return Damaged(f"{self._path} is damaged: {what}")


def _load_chunk(path: Path) -> bytes:
    """A chunk, checked. Raises `Damaged`."""
    content = _read(path, CHUNK + 1)  # a byte more, which there should not be
    if hashlib.sha256(content).hexdigest() != path.name:
        raise Damaged(f"{path} is damaged: its content does not match its checksum")
    return content


def _read(path: Path, size: int = -1) -> bytes:
    try:
        return files.read(path, size, links=False)
    except UserError as error:
        raise Damaged(str(error)) from error


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []
