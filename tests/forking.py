"""Commands of explore in forks of this process, which has imported torch already: seconds faster than new ones."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from typing import IO, Any, NamedTuple, NoReturn

from explore._cli.main import main


class Ended(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class ForkedCommand:
    """Stands in for `subprocess.Popen` of `python -m explore WORDS`, as far as the local launcher uses it."""

    def __init__(self, command: Sequence[str], *, stderr: IO[bytes], stdout: Any = None, **_: Any):
        self.returncode: int | None = None
        words = command[command.index("explore") + 1 :]
        self.pid = os.fork() or _run_and_exit(words, stdout, stderr)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def run_in_fork(*words: str) -> Ended:
    """Runs a command of explore to its end."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        code = ForkedCommand(["explore", *words], stdout=stdout, stderr=stderr).wait()
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode())
    return Ended(code, *texts)


def _run_and_exit(words: Sequence[str], stdout: Any, stderr: IO[bytes]) -> NoReturn:
    code = 99
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(stdout.fileno() if hasattr(stdout, "fileno") else os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(stderr.fileno(), 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        code = main(list(words))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
