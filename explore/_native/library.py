"""The compiled kernels: built at first use with the machine's C++ compiler, and cached."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
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
BUILD_SECONDS = 300


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
    return _load(choose_variant())


@cache
def find_fill() -> ctypes._NamedFuncPointer | None:
    """What draws random numbers for all lanes at once, or None; the same `without_kernels`."""
    try:
        return _load(choose_variant()).fill
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


@cache
def _load(variant: str) -> Library:
    compiler = find_compiler()
    code = SOURCE.read_bytes()
    known = "\0".join([compiler, ask_version(compiler), *FLAGS, *VARIANTS[variant]]).encode()
    name = f"kernels-{variant}-{hashlib.sha256(code + known).hexdigest()[:20]}"
    for find_folder in (find_cache, _make_folder):  # the latter if the cache is read-only
        with suppress(OSError):
            folder = find_folder()
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.so"
            if not _is_whole(path):
                _build(compiler, variant, path)
            return _open(path, variant)
    raise NotAvailable(f"they cannot be written to {find_cache()}")


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
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "explore"


def _make_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="explore-"))


def ask_version(compiler: str) -> str:
    """What a compiler says it is, in a line; raises `NotAvailable`."""
    return _call(compiler, "--version").splitlines()[0]


def _build(compiler: str, variant: str, path: Path) -> None:
    """Compiles to a file of its own, which then takes the place of `path`: others may be building too."""
    handle, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".so")
    os.close(handle)
    try:
        _call(compiler, *FLAGS, *VARIANTS[variant], str(SOURCE), "-o", unfinished)
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
        return hashlib.sha256(path.read_bytes()).hexdigest() == _digest_of(path).read_text()
    except OSError:
        return False


def _call(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailable(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["?"]
        raise NotAvailable(f"{command[0]} failed: {lines[0]}")
    return done.stdout or "?"


def _open(path: Path, variant: str) -> Library:
    try:
        library = ctypes.CDLL(str(path))
        run, argmax, fill = library.explore_run, library.explore_argmax, library.explore_fill
    except (OSError, AttributeError) as error:
        raise NotAvailable(f"{path} cannot be loaded: {error}") from error
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    run.argtypes = [pointer, number, pointer, number, pointer, number, number, pointer]
    argmax.argtypes = [pointer, number, number, pointer]
    fill.argtypes = [pointer, number, number, pointer, pointer, number]
    run.restype = argmax.restype = number
    fill.restype = None
    return Library(variant, path, run, argmax, fill)
