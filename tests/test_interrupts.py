"""Ctrl-C and SIGTERM wait for a moment that suits, and neither is lost."""

import signal

import pytest

from coalmine.interrupts import LastSignal, deferred_interrupt, treat_sigterm_as_ctrl_c


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    treat_sigterm_as_ctrl_c()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    LastSignal.number = None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_a_second_one_interrupts_at_once(number):
    with pytest.raises(KeyboardInterrupt), deferred_interrupt() as interrupted:  # noqa: PT012
        assert not interrupted()
        signal.raise_signal(number)
        assert interrupted()
        signal.raise_signal(number)
        pytest.fail("the second one was only noted as well")
    assert LastSignal.number == number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_the_block_did_not_act_on_interrupts_at_its_end(number):
    reached = False
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():  # noqa: PT012
        signal.raise_signal(number)
        reached = True
    assert reached
    assert LastSignal.number == number


def test_afterwards_signals_act_as_before():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with deferred_interrupt() as interrupted:
        assert signal.getsignal(signal.SIGINT) not in before
    assert not interrupted()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_that_is_ignored_or_kills_stays_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with deferred_interrupt() as interrupted:
        signal.raise_signal(signal.SIGINT)
        assert not interrupted()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
