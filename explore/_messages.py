"""What a user is told on stderr: one line each, and nothing in it that a terminal would obey."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def complain(message: str) -> None:
    """How a command ended badly, red on a terminal."""
    line = _line(message)
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\033[31m{line}\033[0m"
    _print(line)


def note(message: str) -> None:
    """What is worth knowing; the command goes on."""
    _print(_line(f"note: {message}"))


def _print(line: str) -> None:
    with suppress(OSError):  # the terminal is gone, or the log's disk full: no reason to end differently
        print(line, file=sys.stderr, flush=True)


def _line(message: str) -> str:
    return f"explore: {printable(message)}"


def printable(text: str) -> str:
    """In one line; names and values may come from a stranger's file, line breaks and escape codes included."""
    line = " ".join(text.splitlines())
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)


def to_one_line(text: object) -> str:
    return " ".join(str(text).split())


def suggest(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the right name if one is near, else all there are."""
    names = sorted(set(names))
    match = difflib.get_close_matches(name, names, n=1)
    if match:
        return f"; did you mean {match[0]!r}?"
    return f"; there are: {', '.join(names)}" if names else ""


def short_path(path: str | Path) -> str:
    """A path as messages show it: relative if it lies below the working directory."""
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
