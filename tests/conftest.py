import signal
import sys

import pytest

sys.dont_write_bytecode = True  # plugins are rewritten within a second, which their cached bytecode would not show


@pytest.fixture(scope="session", autouse=True)
def usual_signals():
    """Whoever started the tests may ignore signals (nohup, a job in the background); the tests send some."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
