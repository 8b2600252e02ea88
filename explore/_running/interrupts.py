"""Ctrl-C, and its relatives SIGTERM and SIGHUP: a run that is asked to stop ends its episode first."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from explore.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOGETHER = 1.0  # seconds within which signals are one: `timeout make run` sends two, the shell and make one each


class Interrupts:
    """Within `with Interrupts() as interrupts`, `interrupts.number` is the signal that asked to stop, or None.

    One that comes later does not wait for the end of the episode: it raises `Interrupted` at once.
    Signals that are ignored (nohup) stay ignored; threads other than the main one cannot have any.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._asked_at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
            for number, handler in self._before.items():
                if handler not in (signal.SIG_IGN, None):  # None: not one of Python's
                    signal.signal(number, self._note_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            if time.monotonic() < self._asked_at + TOGETHER:
                return
            raise Interrupted(number=number)
        self.number, self._asked_at = number, time.monotonic()
        with suppress(OSError):  # the terminal may be gone; and print might be in the middle of something
            os.write(2, b"\nexplore: ends the episode at hand and writes a checkpoint; once more to stop at once\n")
