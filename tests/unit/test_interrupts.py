import os
import signal
import threading

import pytest

from explore._running import interrupts as interrupts_module
from explore._running.interrupts import SIGNALS, Interrupts
from explore.errors import Interrupted


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_the_second_raises(number, capfd, monkeypatch):
    monkeypatch.setattr(interrupts_module, "TOGETHER", 0.0)
    with Interrupts() as interrupts:
        assert interrupts.number is None
        os.kill(os.getpid(), number)
        assert interrupts.number == number
        with pytest.raises(Interrupted) as raised:
            os.kill(os.getpid(), number)
    assert raised.value.exit_code == 128 + number
    assert capfd.readouterr().err.count("ends the episode at hand") == 1


def test_signals_that_come_together_are_one():
    with Interrupts() as interrupts:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert interrupts.number == signal.SIGTERM


def test_handlers_are_put_back_even_after_an_exception():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(ZeroDivisionError), Interrupts():
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupts.number is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_thread_leaves_signals_alone():
    entered = []

    def work():
        with Interrupts() as interrupts:
            entered.append(interrupts.number)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [None]
