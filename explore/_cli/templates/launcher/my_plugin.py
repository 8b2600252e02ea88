"""Sweeps through another command, such as a cluster's."""

import shutil
import subprocess
import sys
from collections.abc import Sequence

from explore import hookimpl
from explore.interfaces import Launcher, News


class MyPlugin(Launcher):
    """One cell after another, each run by another command.

    Args:
      prefix: the words of that command, such as ['nice'] or ['srun', '--mem=4G']; none: cells run by themselves.
    """

    def __init__(self, prefix: Sequence[str] = ()):
        if prefix and not shutil.which(prefix[0]):
            raise ValueError(f"prefix must begin with a command that is installed, got {prefix!r}")
        self.prefix = prefix

    def launch(self, tasks, asked_to_stop):
        command = [*self.prefix, sys.executable, "-m", "explore"]
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        for task in tasks:
            if asked_to_stop():
                return
            # In a group of its own: Ctrl-C reaches this process alone, which then asks the task once.
            with subprocess.Popen([*command, *task.words], process_group=0, **options) as process:
                try:
                    yield News(task)
                    text = _waited(process, asked_to_stop)
                finally:
                    process.kill()  # does nothing if it has ended
            yield News(task, process.returncode, text)


def _waited(process, asked_to_stop):
    """Waits for a process to end, and returns what it wrote to stderr."""
    asked = False
    while True:
        try:
            return process.communicate(timeout=0.2)[1]
        except subprocess.TimeoutExpired:
            if asked_to_stop() and not asked:
                asked = True
                process.terminate()  # it writes a checkpoint and ends


@hookimpl
def explore_launchers():
    return [MyPlugin]
