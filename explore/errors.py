"""The ways a command can end badly, each with its exit code."""

from __future__ import annotations

import signal

__all__ = ["FolderTaken", "Interrupted", "RunFailed", "SweepFailed", "UserError"]


class UserError(Exception):
    """The user's input is wrong. Shown as one line; exit code 2.

    Say what is wrong, where, and what would be right.
    """

    exit_code = 2


class FolderTaken(UserError):
    """The folder for a new run holds one already."""


class RunFailed(Exception):
    """The run itself failed (a loss turned NaN, the disk is full). Exit code 1."""

    exit_code = 1


class SweepFailed(RunFailed):
    """Some cells of a sweep failed. Exit code 3."""

    exit_code = 3


class Interrupted(KeyboardInterrupt):
    """Someone stopped the run: Ctrl-C (exit code 130), SIGTERM (143) or SIGHUP (129)."""

    def __init__(self, message: str = "", number: int = signal.SIGINT):
        super().__init__(*filter(None, [message]))
        self.number = number
        self.exit_code = 128 + number
