import numpy as np

from eacgm.streams.catalogue import CATALOGUE
from eacgm.streams.phase import CHECKPOINT, EVAL, IDLE, TRAIN, WARMUP, Phase

AT = {name: index for index, name in enumerate(CATALOGUE)}
MIB = 1024 * 1024


def window(phase, told="", **readings):
    values = np.full((2, len(CATALOGUE)), np.nan)
    for name, value in readings.items():
        values[:, AT[name]] = value
    return phase.observe(values, told)


def trained(**readings):
    phase = Phase()
    for _ in range(20):
        window(phase, step_count=4.0, **readings)
    return phase


def test_before_the_first_step_a_job_warms_up():
    phase = Phase()
    assert window(phase, cpu_seconds=1.0) == WARMUP
    assert window(phase, cpu_seconds=1.0, step_count=1.0) == TRAIN


def test_a_burst_of_writes_without_steps_is_a_checkpoint():
    phase = trained(io_written_bytes=4096.0)
    assert window(phase, step_count=0.0, io_written_bytes=64.0 * MIB) == CHECKPOINT
    assert window(phase, step_count=0.0, io_written_bytes=0.0) == TRAIN


def test_writing_while_steps_go_on_is_training():
    assert window(trained(io_written_bytes=4096.0), step_count=3.0, io_written_bytes=64.0 * MIB) == TRAIN


def test_launches_without_steps_are_an_evaluation_after_some_windows():
    phase = trained(cuda_launches=1000.0)
    seen = [window(phase, step_count=0.0, cuda_launches=600.0) for _ in range(4)]
    assert seen == [TRAIN, TRAIN, EVAL, EVAL]


def test_cpu_work_without_steps_is_an_evaluation_where_no_device_is_seen():
    phase = trained(cpu_seconds=1.0)
    assert [window(phase, step_count=0.0, cpu_seconds=0.9) for _ in range(3)][-1] == EVAL


def test_a_hang_stays_training():
    phase = trained(cpu_seconds=1.0)
    seen = {window(phase, step_count=0.0, cpu_seconds=0.9, call_open_seconds=2.0 + n) for n in range(60)}
    assert seen == {TRAIN}


def test_slow_steps_are_no_evaluation():
    phase = Phase()
    for n in range(60):
        phase_now = window(phase, step_count=float(n % 5 == 0), cuda_launches=500.0)
        if n > 10:
            assert phase_now == TRAIN


def test_a_job_that_does_nothing_for_long_is_idle():
    phase = trained(cpu_seconds=1.0)
    seen = [window(phase, step_count=0.0, cpu_seconds=0.001, call_open_seconds=0.0) for _ in range(40)]
    assert seen[0] == TRAIN
    assert seen[-1] == IDLE


def test_what_the_source_says_wins():
    assert window(trained(), told="eval", step_count=4.0) == "eval"
