"""Files that are whole or not there, and the lock on the folder of a run (POSIX).

A file is written beside its place and renamed into it, so that a crash, a full disk or a power cut
leaves the old one or the new one. The lock belongs to the process that holds it: the system frees
it when the process ends, in whichever way.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import platform
import stat
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from explore.errors import UserError

PATIENCE = 0.5
"""Seconds for which a lock is tried: a reader may hold it for a moment, see `is_locked`."""


def crash_point(point: str) -> None:
    """Does nothing: a place where tests cut the power."""


def write(path: Path, *content: bytes | memoryview | str) -> None:
    """Makes a file, or replaces it, by this content; it is on the disk when this returns."""
    place(path, *content)
    sync_folder(path.parent)
    crash_point(f"{path.name}: folder synced")


def place(path: Path, *content: bytes | memoryview | str) -> None:
    """`write`, but the name is on the disk only after `sync_folder`: for many files of one folder."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # rather than to write into it: it may be a link to elsewhere
    try:
        with part.open("xb") as file:
            crash_point(f"{path.name}: part open")
            for piece in content:
                file.write(piece.encode() if isinstance(piece, str) else piece)
            file.flush()
            crash_point(f"{path.name}: part written")
            os.fsync(file.fileno())
            crash_point(f"{path.name}: part synced")
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    crash_point(f"{path.name}: renamed")


def write_all(folder: Path, texts: Mapping[Path, str]) -> list[Path]:
    """Writes files, named by their paths within the folder, which may be new: all of them, or none if one fails.

    Raises `UserError`.
    """
    paths = [folder / path for path in texts]
    with ExitStack() as undo:
        try:
            for path, text in zip(paths, texts.values()):
                for parent in reversed(path.parents):
                    if not parent.exists():
                        parent.mkdir()
                        undo.callback(parent.rmdir)
                undo.callback(path.unlink, missing_ok=True)
                write(path, text)
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}; choose another folder with --out") from error
        undo.pop_all()
    return paths


def open_file(path: Path, mode: str = "rb", links: bool = True) -> io.FileIO:
    """A file to read ("rb"), maybe through a link to elsewhere; or to change ("r+b"), never through one; unbuffered.

    Raises `OSError`, also for what is no file, such as a named pipe.
    """
    flags = os.O_RDONLY if mode == "rb" else os.O_RDWR
    follow = 0 if links and mode == "rb" else os.O_NOFOLLOW
    descriptor = os.open(path, flags | follow | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file")
    return io.FileIO(descriptor, mode)


def read(path: Path, size: int = -1, links: bool = True) -> bytes:
    """The content of a file of a run, or its first bytes; raises `UserError`."""
    try:
        with open_file(path, links=links) as file:
            return file.read(size)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: the run is not over, or its folder is damaged") from error
    except OSError as error:
        reason = "it is not a file" if error.errno == errno.ELOOP else error.strerror
        raise UserError(f"cannot read {path}: {reason}") from error


def read_text(path: Path) -> str:
    """The text of a file of a run; raises `UserError`."""
    try:
        return read(path).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def make_folder(folder: Path) -> None:
    """Makes a folder, whose name is on the disk when this returns; raises `FileExistsError`."""
    folder.mkdir()
    sync_folder(folder.parent)
    crash_point(f"{folder.name} made")


def sync_folder(folder: Path) -> None:
    """Brings the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


class Lock:
    """The right to write to a folder, held by one at a time: `with Lock(folder): ...`.

    The file FOLDER/.lock stays, since to remove it would race with the next holder, and names the last one.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises `UserError` if another holds the lock, and `OSError` if the folder cannot have one."""
        descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            if not _try_lock(descriptor):
                holder = _name_holder(descriptor)
                raise UserError(f"{self.folder} is being run by {holder}; wait for it, or stop it first")
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {platform.node()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Does nothing if the lock is not held."""
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child may still have it open
        os.close(descriptor)

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock of this folder."""
    try:
        descriptor = os.open(Path(folder) / ".lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno != errno.ELOOP  # a link is no lock; one that we may not read belongs to another user
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _try_lock(descriptor: int) -> bool:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)


def _name_holder(descriptor: int) -> str:
    words = os.pread(descriptor, 300, 0).decode(errors="replace").split()
    return f"process {words[0]} on {words[1]}" if len(words) == 2 else "another process"
