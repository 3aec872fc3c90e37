"""lmlib.train.signals: the first signal waits, the second Ctrl-C does not."""

import signal
from threading import Thread

import pytest

from lmlib.train.signals import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_kept_for_later(number):
    before = signal.getsignal(number)
    with StopSignals() as signals:
        assert signals.received is None
        signal.raise_signal(number)
        assert signals.received is number
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_leaves_at_once():
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # what sends it is patient
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signals.received is signal.SIGTERM


def test_an_error_inside_gives_the_handlers_back():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyError), StopSignals():
        raise KeyError
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_it_does_nothing():
    seen = []

    def listen():
        before = signal.getsignal(signal.SIGINT)
        with StopSignals():
            seen.append(signal.getsignal(signal.SIGINT) is before)

    thread = Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [True]
