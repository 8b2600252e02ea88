"""What a user is told on stderr: one line each, and nothing in it that a terminal would obey."""

from __future__ import annotations

import os
import sys


def complain(message: str) -> None:
    """How a command ended badly, red on a terminal."""
    line = _line(message)
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        line = f"\033[31m{line}\033[0m"
    print(line, file=sys.stderr)


def note(message: str) -> None:
    """What is worth knowing; the command goes on."""
    print(_line(f"note: {message}"), file=sys.stderr)


def _line(message: str) -> str:
    """Names and values may come from a stranger's file, line breaks and escape codes included."""
    text = " ".join(message.splitlines())
    return "explore: " + "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
