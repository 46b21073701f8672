import numpy as np

from eacgm.events import FrameEvent
from eacgm.streams.signs import Signs
from eacgm.streams.silence import ABSENT, CHECKPOINT, DATA, DEAD, IDLE, STARTING, STOPPED, WORKING, SilenceTracker

NAMES = ["step_seconds", "collective_count", "cuda_launches", "io_wait_seconds", "io_written_bytes", "stopped_ratio"]
COLUMNS = {name: index for index, name in enumerate(NAMES)}


def frame(second, **columns):
    values = np.zeros((4, len(NAMES)))
    values[:, 0] = np.nan
    for name, column in columns.items():
        values[:, COLUMNS[name]] = column
    return FrameEvent(
        job="j", start_ns=second * 10**9, end_ns=(second + 1) * 10**9, ranks=np.arange(4), present=[True] * 4,
        nodes=[""] * 4, groups=[""] * 4, features=NAMES, values=values,
    )  # fmt: skip


def signs(*unseen):
    """Signs after each rank has been unseen for so many windows."""
    made = Signs()
    made.observe(frame(0), COLUMNS)
    for window in range(max(unseen, default=0)):
        past = frame(window)
        past.present = [window >= count for count in unseen]
        made.observe(past, COLUMNS)
    return made


def tracker(seconds=10):
    silences = SilenceTracker()
    for second in range(seconds):
        healthy = frame(second, step_seconds=0.5, collective_count=8, cuda_launches=1000, io_written_bytes=1e4)
        assert silences.observe(healthy, COLUMNS, signs()) is None
    return silences


def kind(silences, second=10, unseen=(0, 0, 0, 0), **columns):
    silence = silences.observe(frame(second, **columns), COLUMNS, signs(*unseen))
    return silence.kind, silence.missing.nonzero()[0].tolist(), silence.writers.nonzero()[0].tolist()


def test_before_the_first_step_a_job_is_starting():
    assert kind(SilenceTracker())[0] == STARTING


def test_who_issued_fewer_collectives_is_absent():
    assert kind(tracker(), collective_count=[8, 8, 0, 8]) == (ABSENT, [2], [])


def test_half_of_the_ranks_cannot_be_the_culprits():
    assert kind(tracker(), collective_count=[8, 0, 0, 8])[0] == IDLE


def test_writes_are_a_checkpoint_launches_are_work_and_io_without_them_is_data():
    assert kind(tracker(), io_written_bytes=[1e9, 0, 0, 0]) == (CHECKPOINT, [], [0])
    assert kind(tracker(), cuda_launches=500)[0] == WORKING
    assert kind(tracker(), io_wait_seconds=0.9)[0] == DATA


def test_stopped_and_dead_ranks_are_named():
    assert kind(tracker(), stopped_ratio=[0, 1, 0, 0]) == (STOPPED, [1], [])
    assert kind(tracker(), unseen=(0, 0, 0, 3)) == (DEAD, [3], [])
    assert kind(tracker(), unseen=(0, 0, 0, 1))[0] == IDLE


def test_past_silences_are_remembered_by_kind():
    silences = tracker()
    for second in range(10, 16):
        kind(silences, second, io_written_bytes=[1e9, 0, 0, 0])
    silences.observe(frame(16, step_seconds=0.5), COLUMNS, signs())
    assert silences.typical(CHECKPOINT) == 6.0
    assert silences.longest(CHECKPOINT) == 6.0
    assert silences.typical(DATA) is None


def test_state_is_all_there_is():
    silences = tracker()
    kind(silences, collective_count=[8, 8, 0, 8])
    copy = SilenceTracker()
    copy.load(silences.state())
    assert repr(copy.state()) == repr(silences.state())
    assert kind(copy, 11, collective_count=0) == kind(silences, 11, collective_count=0)


def test_a_tie_between_kinds_is_settled_alike_in_every_process():
    tracker = SilenceTracker(kinds=["working", "checkpoint", "working", "checkpoint"])
    assert tracker.prevailing == "checkpoint"
    tracker.kinds.reverse()
    assert tracker.prevailing == "checkpoint"
