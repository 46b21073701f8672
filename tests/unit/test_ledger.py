import numpy as np

from eacgm.streams.ledger import SPAN_WINDOWS, Ledger


def booked(pauses, windows=100, usual=0.002):
    ledger = Ledger()
    for window in range(windows):
        seconds = np.full(4, usual)
        if window in pauses:
            rank, length = pauses[window]
            seconds[rank] = length
        ledger.book(window, [0, 1, 2, 3], seconds)
    return ledger


def test_pauses_of_different_ranks_add_up():
    loss = booked({20: (1, 0.7), 40: (3, 0.8), 60: (1, 0.6)}).loss()
    assert loss.occurrences == 3
    assert abs(loss.seconds - 2.094) < 1e-3
    assert loss.ranks == (1, 3)


def test_what_is_usual_is_no_loss():
    assert booked({}, usual=0.5).loss() is None
    assert booked({50: (1, 4.0)}, usual=0.5).loss().seconds == 3.5


def test_old_pauses_are_forgotten():
    assert booked({5: (0, 0.9)}, windows=5 + SPAN_WINDOWS + 1).loss() is None


def test_state_round_trips():
    ledger, copy = booked({20: (1, 0.7)}), Ledger()
    copy.load(ledger.state())
    assert copy == ledger
