import numpy as np
import pytest

from eacgm.producers import maps
from eacgm.producers.accounts import CallAccount, CollectiveAccount, HostAccount, thread_times

SECOND = 1_000_000_000
FUNCTIONS = [
    ("", "", ""),
    ("pytorch", "backward", ""),
    ("collective", "allreduce", "gloo"),
    ("collective", "allreduce", "nccl"),
]


def thread(state, since_ns, *, outer_sp=0, **times):
    row = np.zeros(1, dtype=maps.THREAD)
    row["state"], row["since_ns"], row["outer_sp"] = state, since_ns, outer_sp
    for name, value in times.items():
        row["time_ns"][0, getattr(maps, name)] = value
    return row


def traffic(*values):
    return np.array(values or (0, 0, 0), dtype=np.int64)


def none():
    return np.zeros(maps.N_TIMES, dtype=np.int64)


def rows(**values):
    row = np.zeros(1, dtype=maps.ROW)
    row["sums"][0] = values.get("sums", (0, 0, 0, 0))
    for bucket, count in values.get("histogram", {}).items():
        row["histogram"][0, bucket] = count
    row["max_ns"][0] = values.get("max_ns", (0, 0))
    row["max_interval"][0] = values.get("max_interval", (0, 0))
    return row


@pytest.mark.parametrize(
    ("state", "outer_sp", "blocked_ns"),
    [
        (maps.SLEEPING, 0, 5),
        (maps.UNINTERRUPTIBLE, 0, 5),
        (maps.SLEEPING, 0x7000, 0),
        (maps.RUNNING, 0, 0),
        (maps.RUNNABLE, 0, 0),
        (maps.STOPPED, 0, 0),
    ],
)
def test_the_state_a_thread_is_in_counts_up_to_now(state, outer_sp, blocked_ns):
    times = thread_times(thread(state, 100, outer_sp=outer_sp), 105)
    assert times[0, state] == 5
    assert times[0, maps.BLOCKED] == blocked_ns
    assert times.sum() == 5 + blocked_ns


def test_a_thread_that_switched_after_now_was_read_counts_nothing():
    assert thread_times(thread(maps.RUNNING, 110), 105).sum() == 0


def collect(account, tids, threads, now_ns, *, departed=None, step_tid=0, moved=None):
    times = thread_times(threads, now_ns)
    states = threads["state"].astype(np.int64)
    return account.collect(
        np.array(tids), times, states, none() if departed is None else departed, step_tid, traffic(*(moved or ()))
    )


def test_seconds_are_differences_and_ended_threads_are_not_lost():
    account = HostAccount(7)
    both = np.concatenate([thread(maps.RUNNING, 0), thread(maps.SLEEPING, 0)])
    collect(account, [7, 8], both, SECOND)
    seen = collect(account, [7, 8], both, 2 * SECOND, moved=(10, 20, 1))
    assert (seen.cpu_seconds, seen.off_cpu_seconds, seen.threads) == (1.0, 1.0, 2)
    assert (seen.net_sent_bytes, seen.net_received_bytes, seen.net_retransmits) == (10.0, 20.0, 1.0)
    departed = none()
    departed[maps.SLEEPING] = 3 * SECOND  # thread 8 slept one more second and ended
    last = collect(account, [7], both[:1], 3 * SECOND, departed=departed, moved=(15, 20, 1))
    assert (last.cpu_seconds, last.off_cpu_seconds, last.threads) == (1.0, 1.0, 1)
    assert (last.net_sent_bytes, last.net_received_bytes) == (5.0, 0.0)


def test_a_total_that_dips_is_made_up_and_never_negative():
    account = HostAccount(7)
    both = np.concatenate([thread(maps.RUNNING, 0), thread(maps.RUNNING, 0)])
    collect(account, [7, 8], both, SECOND)
    dip = collect(account, [7], both[:1], 2 * SECOND)  # 8 has ended, but its time is not yet seen where it went
    departed = none()
    departed[maps.RUNNING] = 2 * SECOND
    after = collect(account, [7], both[:1], 3 * SECOND, departed=departed)
    assert dip.cpu_seconds == 0.0
    assert after.cpu_seconds == 3.0


def test_the_step_thread_needs_two_readings():
    account = HostAccount(7)
    one = thread(maps.SLEEPING, 0)
    assert collect(account, [7], one, SECOND).step_thread_blocked_seconds is None
    assert collect(account, [7], one, 2 * SECOND, step_tid=7).step_thread_blocked_seconds is None
    assert collect(account, [7], one, 3 * SECOND, step_tid=7).step_thread_blocked_seconds == 1.0
    assert collect(account, [7], one, 4 * SECOND, step_tid=9).step_thread_blocked_seconds is None


def test_traffic_that_the_kernel_does_not_tell_is_unknown_not_none_at_all():
    account = HostAccount(7, counted=(False, False, True))
    running = thread(maps.RUNNING, 0)
    collect(account, [7], running, SECOND)
    seen = collect(account, [7], running, 2 * SECOND, moved=(0, 0, 2))
    assert (seen.net_sent_bytes, seen.net_received_bytes, seen.net_retransmits) == (None, None, 2.0)


def test_a_stop_is_the_main_thread_s():
    account = HostAccount(7)
    stopped = np.concatenate([thread(maps.STOPPED, 0), thread(maps.STOPPED, 0)])
    collect(account, [7, 8], stopped, SECOND)
    seen = collect(account, [7, 8], stopped, 2 * SECOND)
    assert (seen.stopped, seen.stopped_seconds) == (True, 1.0)


def test_calls_are_differences_and_rows_stay_once_they_were_seen():
    account = CallAccount(FUNCTIONS)
    no_ids, no_ages = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    first = rows(sums=(3, 1, 10, 600), histogram={7: 3}, max_ns=(300, 0), max_interval=(4, 0))
    seen = account.collect(np.array([1]), first, 4, no_ids, no_ages)
    assert (seen.layer, seen.function) == (["pytorch"], ["backward"])
    assert [seen.count[0], seen.errors[0], seen.payload_bytes[0], seen.total_ns[0], seen.max_ns[0]] == [
        3,
        1,
        10,
        600,
        300,
    ]
    assert (seen.histogram_row.tolist(), seen.histogram_bucket.tolist(), seen.histogram_count.tolist()) == (
        [0],
        [7],
        [3],
    )
    quiet = account.collect(np.array([1]), first, 5, no_ids, no_ages)
    assert (quiet.function, quiet.count.tolist(), quiet.max_ns.tolist()) == (["backward"], [0], [0])
    assert len(quiet.histogram_row) == 0


def test_the_maximum_is_that_of_its_own_interval():
    account = CallAccount(FUNCTIONS)
    empty = np.empty(0, dtype=np.int64)
    # interval 5 has begun while interval 4 was read: both maxima are there
    row = rows(sums=(2, 0, 0, 900), max_ns=(300, 600), max_interval=(4, 5))[:1]
    row["max_ns"][0], row["max_interval"][0] = (300, 600), (4, 5)
    assert account.collect(np.array([1]), row, 4, empty, empty).max_ns.tolist() == [300]
    assert account.collect(np.array([1]), row, 5, empty, empty).max_ns.tolist() == [600]


def test_one_function_of_two_families_is_one_row():
    account = CallAccount(FUNCTIONS)
    empty = np.empty(0, dtype=np.int64)
    both = np.concatenate([rows(sums=(2, 0, 5, 20)), rows(sums=(3, 1, 7, 30))])
    seen = account.collect(np.array([2, 3]), both, 1, empty, empty)
    assert seen.function == ["allreduce"]
    assert [seen.count[0], seen.errors[0], seen.payload_bytes[0], seen.total_ns[0]] == [5, 1, 12, 50]


def test_calls_in_flight_show_the_oldest_even_if_none_ever_returned():
    account = CallAccount(FUNCTIONS)
    nothing = np.zeros(0, dtype=maps.ROW)
    seen = account.collect(np.empty(0, dtype=np.int64), nothing, 1, np.array([1, 1]), np.array([50, 70]))
    assert (seen.function, seen.count.tolist(), seen.open_count.tolist(), seen.open_age_ns.tolist()) == (
        ["backward"],
        [0],
        [2],
        [70],
    )


def test_communicators_are_numbered_in_the_order_in_which_they_were_first_used():
    account = CollectiveAccount(FUNCTIONS)
    records = np.zeros(4, dtype=maps.RECORD)
    records["start_ns"] = [40, 10, 20, 30]
    records["communicator"] = [0xB, 0xA, 0xB, 0]
    records["function"] = [2, 2, 2, 2]
    seen = account.collect(records, np.zeros(0, dtype=maps.OPEN_CALL), 1000)
    assert seen.communicator == ["gloo/0", "gloo/1", "gloo", "gloo/1"]
    assert seen.call_start_ns.tolist() == [1010, 1020, 1030, 1040]
    open_calls = np.zeros(2, dtype=maps.OPEN_CALL)
    open_calls["communicator"], open_calls["function"] = [0xA, 0xA], [2, 3]
    later = account.collect(np.zeros(0, dtype=maps.RECORD), open_calls, 1000)
    assert later.open_communicator == ["gloo/0", "nccl/0"]
