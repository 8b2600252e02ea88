"""Marks every test by its folder; gives each process one thread, and signals as in a terminal."""

import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side; read by torch when it is imported

import pytest

sys.dont_write_bytecode = True  # plugins are rewritten within a second, which their cached bytecode would not show

TESTS = Path(__file__).parent
MARKS = {"learning": "learning", "process": "process", "docs": "process", "fuzz": "fuzz"}


def pytest_collection_modifyitems(items):
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in MARKS:
            item.add_marker(MARKS[folder])


@pytest.fixture(scope="session", autouse=True)
def usual_signals():
    """Whoever started the tests may ignore signals (nohup, a job in the background); the tests send some."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def kernels():
    """The variant of the native kernels on this machine; a test that needs them is skipped where there are none."""
    from explore._native import library

    try:
        return library.load_library().variant
    except library.NotAvailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def forked_cells(monkeypatch):
    """The local launcher forks this process, which has imported torch, for each cell of a sweep: seconds faster."""
    from explore_plugins import local_launcher
    from forking import ForkedCommand

    monkeypatch.setattr(local_launcher, "Popen", ForkedCommand)
