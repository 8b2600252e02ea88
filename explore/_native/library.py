"""The compiled kernels: built at first use with the machine's C++ compiler, and cached."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("kernels.cpp")
FLAGS = ["-O3", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
VARIANTS = {
    "avx512": ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mavx2", "-mfma", "-mprefer-vector-width=512"],
    "avx2": ["-mavx2", "-mfma"],
    "portable": [],
}
"""Instruction set -> flags; what they compute is the same to the bit."""
SETTING = "EXPLORE_KERNELS"
"""The environment variable that chooses a variant, or `off`: PyTorch."""
MORE_FLAGS = "EXPLORE_KERNEL_FLAGS"
"""The environment variable with further flags for the compiler, for `make sanitize`."""
BUILD_SECONDS, VERSION_SECONDS = 300, 30


class NotAvailable(Exception):
    """The kernels cannot be used; the message says why."""


@dataclass(frozen=True)
class Library:
    """Functions of `kernels.cpp`, and which variant of it this is."""

    variant: str
    path: Path
    run: ctypes._NamedFuncPointer
    argmax: ctypes._NamedFuncPointer
    fill: ctypes._NamedFuncPointer


def load_library() -> Library:
    """The library for this processor; raises `NotAvailable`."""
    if _switched_off.get():
        raise NotAvailable("they are switched off")
    return _require(choose_variant())


@cache
def find_fill() -> ctypes._NamedFuncPointer | None:
    """What draws random numbers for all lanes at once, or None; the same `without_kernels`."""
    try:
        return _require(choose_variant()).fill
    except NotAvailable:
        return None


def choose_variant() -> str:
    """What this processor can run, unless the environment asks for something else; raises `NotAvailable`."""
    wanted = os.environ.get(SETTING) or "auto"
    if wanted == "off":
        raise NotAvailable(f"{SETTING}=off is set")
    able = {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability(), "portable")
    if wanted == "auto":
        return able
    if wanted not in VARIANTS:
        raise NotAvailable(f"{SETTING} must be auto, off, {', '.join(VARIANTS)}, got {wanted!r}")
    if list(VARIANTS).index(wanted) < list(VARIANTS).index(able):
        raise NotAvailable(f"{SETTING}={wanted}, which this processor does not have")
    return wanted


@contextmanager
def without_kernels() -> Iterator[None]:
    """Networks are evaluated and trained by PyTorch inside; random numbers stay the same."""
    token = _switched_off.set(True)
    try:
        yield
    finally:
        _switched_off.reset(token)


_switched_off: ContextVar[bool] = ContextVar("kernels are switched off", default=False)


def _require(variant: str) -> Library:
    found = _load(variant)
    if isinstance(found, str):
        raise NotAvailable(found)
    return found


@cache
def _load(variant: str) -> Library | str:
    """The library, or why there is none: what has failed, perhaps after minutes, is not tried again."""
    try:
        return _find_or_build(variant)
    except (NotAvailable, OSError) as reason:
        return " ".join(str(reason).split())


def _find_or_build(variant: str) -> Library:
    compiler = find_compiler()
    flags = [*FLAGS, *VARIANTS[variant], *os.environ.get(MORE_FLAGS, "").split()]
    known = "\0".join([compiler, ask_version(compiler), platform.system(), platform.machine(), *flags])
    content = SOURCE.read_bytes() + known.encode(errors="surrogateescape")
    name = f"kernels-{variant}-{hashlib.sha256(content).hexdigest()[:20]}.so"
    reasons = []
    for find_folder in (find_cache, _make_temporary_folder):  # the latter if the cache is read-only
        try:
            path = find_folder() / name
            path.parent.mkdir(parents=True, exist_ok=True)
            return _open_or_build(compiler, flags, path, variant)
        except OSError as reason:
            reasons.append(str(reason))
    raise NotAvailable(f"they can be kept nowhere: {'; '.join(reasons)}")


def _open_or_build(compiler: str, flags: list[str], path: Path, variant: str) -> Library:
    if _is_whole(path):
        with suppress(OSError):  # of a system that shares the folder but not its libraries
            return _open(path, variant)
    _build(compiler, flags, path)
    return _open(path, variant)


def find_compiler() -> str:
    """The path of a C++ compiler; raises `NotAvailable`."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise NotAvailable(
        f"there is no C++ compiler ({', '.join(names)}); install one, such as g++, to be many times faster"
    )


def find_cache() -> Path:
    """The folder of compiled kernels."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if home.startswith("~"):
        raise OSError("there is no home folder")
    return Path(home) / "explore"


def ask_version(compiler: str) -> str:
    """What a compiler says it is, in a line; raises `NotAvailable`."""
    return next(iter(_call(VERSION_SECONDS, compiler, "--version").splitlines()), "")


def _make_temporary_folder() -> Path:
    """A folder that is removed when this process ends; processes forked from it leave it alone."""
    folder, owner = Path(tempfile.mkdtemp(prefix="explore-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _build(compiler: str, flags: list[str], path: Path) -> None:
    """Compiles to a file of its own, which then takes the place of `path`: others may be building too."""
    handle, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".so")
    os.close(handle)
    try:
        _call(BUILD_SECONDS, compiler, *flags, str(SOURCE), "-o", unfinished)
        digest = hashlib.sha256(Path(unfinished).read_bytes()).hexdigest()
        os.chmod(unfinished, 0o755)
        os.replace(unfinished, path)
        _digest_of(path).write_text(digest)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def _digest_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _is_whole(path: Path) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest().encode() == _digest_of(path).read_bytes()
    except OSError:
        return False


def _call(seconds: float, *command: str) -> str:
    name = command[0]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NotAvailable(f"{name} cannot be run: {error.strerror}") from error
    with process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that a compiler starts
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotAvailable(f"{name} took longer than {seconds} seconds") from error
            raise
    if process.returncode:
        told = [line for line in errors.splitlines() if line.strip()] or [f"exit code {process.returncode}"]
        raise NotAvailable(f"{name} failed: {next((line for line in told if 'error' in line), told[0])}")
    return output


def _open(path: Path, variant: str) -> Library:
    try:
        library = ctypes.CDLL(str(path))
        run, argmax, fill = library.explore_run, library.explore_argmax, library.explore_fill
    except (OSError, AttributeError) as error:
        raise OSError(f"{path} cannot be loaded: {error}") from error
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    run.argtypes = [pointer, number, pointer, number, pointer, number, number, pointer]
    argmax.argtypes = [pointer, number, number, pointer]
    fill.argtypes = [pointer, number, number, pointer, pointer, number]
    run.restype = argmax.restype = number
    fill.restype = None
    return Library(variant, path, run, argmax, fill)
