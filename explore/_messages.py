"""What a user is told on stderr: one line each, and nothing in it that a terminal would obey."""

from __future__ import annotations

import os
import sys
from contextlib import suppress


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
