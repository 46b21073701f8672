from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from synthetic import COLUMN, FEATURES, SyntheticJob, opened, silence, watch

from eacgm.config import Config
from eacgm.streams.detect import Detector

ONSET = 150


def from_onset(change):
    def apply(second, values):
        if second >= ONSET:
            change(second, values)

    return apply


def scaled(name, rank, factor):
    def change(second, values):
        values[rank, COLUMN[name]] *= factor

    return from_onset(change)


def test_health_raises_nothing():
    alerts, _, _ = watch(SyntheticJob(seed=3).frames(900))
    assert opened(alerts) == []


def test_slow_rank_is_named_within_five_windows():
    alerts, _, _ = watch(SyntheticJob().frames(200, scaled("compute_seconds", 2, 1.4)))
    assert opened(alerts) == [("slow_compute", [2])]
    assert alerts[0].detected_at_ns <= (ONSET + 6) * 10**9


def test_victims_with_the_longest_collectives_are_not_blamed():
    alerts, detection, _ = watch(SyntheticJob().frames(200, scaled("compute_seconds", 5, 1.6)))
    waits = detection.frame.values[:, COLUMN["collective_seconds"]]
    assert waits.argmin() == 5
    assert opened(alerts) == [("slow_compute", [5])]


def test_rank_slow_from_its_first_step_is_named():
    def change(second, values):
        values[6, COLUMN["compute_seconds"]] *= 1.8

    alerts, _, _ = watch(SyntheticJob().frames(90, change))
    assert opened(alerts) == [("slow_compute", [6])]
    assert "first step" in alerts[0].summary


def test_two_ranks_cannot_vote():
    alerts, _, _ = watch(SyntheticJob(n_ranks=2).frames(200, scaled("compute_seconds", 1, 1.4)))
    assert all(cause == "job_slowdown" for cause, _ in opened(alerts))


def test_low_clock_explains_slow_computing():
    def change(second, values):
        values[3, COLUMN["compute_seconds"]] *= 1.3
        values[3, COLUMN["gpu_sm_clock_hertz"]] *= 0.75

    alerts, _, _ = watch(SyntheticJob().frames(200, from_onset(change)))
    assert opened(alerts) == [("gpu_throttle", [3])]


def test_run_queue_wait_explains_slow_computing():
    def change(second, values):
        values[4:6, COLUMN["compute_seconds"]] += 0.15
        values[4:6, COLUMN["run_queue_wait_seconds"]] += 0.30

    alerts, _, _ = watch(SyntheticJob().frames(200, from_onset(change)))
    assert opened(alerts) == [("host_contention", [4, 5])]


def test_a_quota_of_its_own_is_no_contention():
    def change(second, values):
        values[1, COLUMN["compute_seconds"]] += 0.15
        values[1, COLUMN["run_queue_wait_seconds"]] += 0.30
        values[1, COLUMN["throttled_seconds"]] = 0.5

    alerts, _, _ = watch(SyntheticJob().frames(200, from_onset(change)))
    assert opened(alerts) == [("slow_compute", [1])]


def test_one_rank_that_waits_for_data_is_named():
    def change(second, values):
        values[7, COLUMN["data_wait_seconds"]] += 0.08

    alerts, _, _ = watch(SyntheticJob().frames(200, from_onset(change)))
    assert opened(alerts) == [("data_stall", [7])]


def test_slow_copies_of_one_rank_are_pcie():
    alerts, _, _ = watch(SyntheticJob().frames(200, scaled("cuda_memcpy_seconds", 0, 4.0)))
    assert opened(alerts) == [("pcie", [0])]


def test_rotating_collections_are_told_without_a_culprit():
    def change(second, values):
        if second % 25 == 0:
            values[second // 25 % 8, COLUMN["gc_seconds"]] = 0.8

    alerts, _, _ = watch(SyntheticJob().frames(300, from_onset(change)))
    assert opened(alerts) == [("gc_pause", [])]


def start_up(seconds):
    """Frames of ranks that import their libraries: no steps, no collectives, much garbage."""
    names = ["gc_seconds", "cpu_seconds", "run_queue_wait_seconds"]
    for frame in SyntheticJob().frames(seconds):
        values = frame.values[:, [COLUMN[name] for name in names]]
        values[:, 0] = 1.0 if frame.start_ns // 10**9 % 5 == 0 else 0.05
        yield replace(frame, features=names, values=values)


def after(seconds, frames):
    for frame in frames:
        yield replace(frame, start_ns=frame.start_ns + seconds * 10**9, end_ns=frame.end_ns + seconds * 10**9)


def test_garbage_of_a_long_start_up_is_no_pause_and_hides_no_straggler():
    change = scaled("compute_seconds", 2, 1.4)
    frames = chain(start_up(60), after(60, SyntheticJob().frames(200, change)))
    alerts, _, _ = watch(frames)
    assert opened(alerts) == [("slow_compute", [2])]


def test_start_up_teaches_nothing():
    frames = list(SyntheticJob().frames(120))
    plain = [detection.scores for detection in scored(frames)]
    late = [detection.scores for detection in scored([*start_up(60), *after(60, frames)])]
    np.testing.assert_array_equal(late[60:], plain)


def scored(frames):
    detector = Detector(Config())
    return [detector.observe(frame) for frame in frames]


def test_slow_network_names_the_long_path():
    def change(second, values):
        values[:, COLUMN["collective_seconds"]] += 0.08
        values[:, COLUMN["step_seconds"]] = 0.0
        values[4:6, COLUMN["net_rtt_seconds"]] *= 1.6

    class Slower(SyntheticJob):
        def _wait_for_peers(self, values):
            extra = values[:, COLUMN["collective_seconds"]].mean() - 0.05
            super()._wait_for_peers(values)
            values[:, COLUMN["step_seconds"]] += max(extra, 0.0)

    alerts, _, _ = watch(Slower().frames(260, from_onset(change)))
    assert opened(alerts) == [("network", [4, 5])]


def test_job_that_became_slower_for_everyone():
    def change(second, values):
        values[:, COLUMN["compute_seconds"]] *= 1.3

    alerts, _, _ = watch(SyntheticJob().frames(260, from_onset(change)))
    assert opened(alerts) == [("job_slowdown", [])]


def test_longer_steps_with_more_work_are_adopted_in_silence():
    def change(second, values):
        values[:, COLUMN["compute_seconds"]] *= 1.25
        values[:, COLUMN["gpu_memory_used_bytes"]] *= 1.15

    alerts, _, _ = watch(SyntheticJob().frames(400, from_onset(change)))
    assert opened(alerts) == []


def test_leak_is_told_and_a_step_in_memory_is_not():
    def leak(second, values):
        values[:, COLUMN["gpu_memory_used_bytes"]] += 1e7 * second

    def jump(second, values):
        values[:, COLUMN["gpu_memory_used_bytes"]] *= 1.2 if second > 200 else 1.0

    assert opened(watch(SyntheticJob().frames(400, leak))[0]) == [("gpu_memory", [])]
    assert opened(watch(SyntheticJob().frames(400, jump))[0]) == []


@pytest.mark.parametrize(("xid", "cause"), [(79, "gpu_hardware"), (13, None)])
def test_hardware_xid_is_the_devices_and_others_are_the_programs(xid, cause):
    def change(second, values):
        values[3, COLUMN["gpu_xid"]] = xid if second == ONSET else 0

    alerts, _, _ = watch(SyntheticJob().frames(170, change))
    assert opened(alerts) == ([(cause, [3])] if cause else [])


def test_new_ecc_errors_are_told_and_old_ones_are_not():
    def change(second, values):
        values[:, COLUMN["gpu_ecc_errors"]] = 7.0
        values[2, COLUMN["gpu_ecc_errors"]] += second >= ONSET

    alerts, _, _ = watch(SyntheticJob().frames(170, change))
    assert opened(alerts) == [("gpu_hardware", [2])]


def test_lost_gpu_dead_process_and_hang_are_one_incident():
    def change(second, values):
        silence(values)
        if second == ONSET:
            values[3, COLUMN["gpu_xid"]] = 79
        elif second > ONSET + 2:
            values[3] = np.nan

    alerts, _, _ = watch(SyntheticJob().frames(260, from_onset(change)))
    assert opened(alerts) == [("gpu_hardware", [3])]


def test_process_that_dies_is_a_crash_with_its_signal():
    def change(second, values):
        silence(values)
        values[5] = np.nan
        if second == ONSET:
            values[5, COLUMN["exited"]], values[5, COLUMN["exit_code"]] = 1.0, -9.0

    alerts, _, _ = watch(SyntheticJob().frames(200, from_onset(change)))
    assert opened(alerts) == [("crash", [5])]
    assert "signal 9" in alerts[0].summary


def test_vanished_rank_is_a_crash_only_if_the_others_stall():
    def stall(second, values):
        silence(values)
        values[5] = np.nan

    def go_on(second, values):
        values[5] = np.nan

    assert opened(watch(SyntheticJob().frames(200, from_onset(stall)))[0]) == [("crash", [5])]
    assert opened(watch(SyntheticJob().frames(200, from_onset(go_on)))[0]) == [("telemetry_lost", [5])]


def test_a_lost_window_is_nothing():
    def change(second, values):
        if second in (160, 190, 191):
            values[second % 8] = np.nan

    assert opened(watch(SyntheticJob().frames(240, change))[0]) == []


def test_hang_names_who_never_entered_the_collective():
    def change(second, values):
        silence(values)
        if second == ONSET:
            values[:, COLUMN["collective_count"]] = 8.0
            values[6, COLUMN["collective_count"]] = 0.0

    alerts, _, _ = watch(SyntheticJob().frames(200, from_onset(change)))
    assert opened(alerts) == [("hang", [6])]
    assert alerts[0].detected_at_ns <= (ONSET + 10) * 10**9


def test_stopped_process_hangs_the_job_and_the_incident_resolves():
    def change(second, values):
        if ONSET <= second < ONSET + 8:
            silence(values)
            values[3, COLUMN["stopped_ratio"]] = 1.0

    alerts, _, _ = watch(SyntheticJob().frames(200, change))
    assert opened(alerts) == [("hang", [3])]
    assert [alert.state for alert in alerts] == ["open", "resolved"]


def test_evaluation_and_checkpoints_of_the_usual_length_are_no_hang():
    def change(second, values):
        if 100 <= second < 160:
            launches = values[:, COLUMN["cuda_launches"]].copy()
            silence(values)
            values[:, COLUMN["cuda_launches"]] = 0.6 * launches
        if second % 200 >= 170:
            silence(values)
            values[0, COLUMN["io_written_bytes"]] = 3e8

    assert opened(watch(SyntheticJob().frames(800, change))[0]) == []


def test_checkpoint_far_longer_than_usual_is_told_while_it_lasts():
    def change(second, values):
        saving = second % 100 >= 95 or second >= 395
        if saving:
            silence(values)
            values[0, COLUMN["io_written_bytes"]] = 8e7

    alerts, _, _ = watch(SyntheticJob().frames(460, change))
    assert opened(alerts) == [("checkpoint_stall", [0])]


def test_everyone_waiting_for_data_is_no_hang():
    def change(second, values):
        silence(values)
        values[:, COLUMN["io_wait_seconds"]] = 0.9
        values[:, COLUMN["gpu_utilization_ratio"]] = 0.0

    assert opened(watch(SyntheticJob().frames(190, from_onset(change)))[0]) == [("data_stall", [])]


def test_features_are_those_of_the_catalogue():
    from eacgm.streams.catalogue import CATALOGUE

    assert set(FEATURES) <= set(CATALOGUE)


def test_peers_that_die_of_a_crash_are_not_its_culprits():
    def change(second, values):
        silence(values)
        if second == ONSET:
            values[5, COLUMN["exited"]], values[5, COLUMN["exit_code"]] = 1.0, -11.0
        else:
            values[5] = np.nan
        if second == ONSET + 40:
            values[:, COLUMN["exited"]], values[:, COLUMN["exit_code"]] = 1.0, -6.0
            values[5] = np.nan
        elif second > ONSET + 40:
            values[:] = np.nan

    alerts, _, _ = watch(SyntheticJob().frames(320, from_onset(change)))
    assert opened(alerts) == [("crash", [5])]
    assert alerts[-1].state == "resolved"


@pytest.mark.parametrize("code", [0.0, -15.0, -2.0])
def test_a_job_that_is_asked_to_end_is_no_crash(code):
    def change(second, values):
        silence(values)
        if second == ONSET:
            values[:, COLUMN["exited"]], values[:, COLUMN["exit_code"]] = 1.0, code
        else:
            values[:] = np.nan

    alerts, _, _ = watch(SyntheticJob().frames(260, from_onset(change)))
    assert opened(alerts) == []


@pytest.mark.parametrize(
    ("name", "factor", "extra", "cause"),
    [
        ("gpu_sm_clock_hertz", 0.7, 0.0, "gpu_throttle"),
        ("run_queue_wait_seconds", 1.0, 0.4, "host_contention"),
    ],
)
def test_what_slows_everyone_is_named(name, factor, extra, cause):
    def change(second, values):
        values[:, COLUMN["compute_seconds"]] *= 1.35
        values[:, COLUMN[name]] = values[:, COLUMN[name]] * factor + extra

    alerts, _, _ = watch(SyntheticJob().frames(260, from_onset(change)))
    assert opened(alerts) == [(cause, [])]


def test_all_ranks_waiting_for_data_in_every_step_are_a_data_stall():
    def change(second, values):
        values[:, COLUMN["data_wait_seconds"]] += 0.2

    alerts, _, _ = watch(SyntheticJob().frames(260, from_onset(change)))
    assert opened(alerts) == [("data_stall", [])]


def test_an_incident_ends_when_little_is_left_of_the_fault():
    def change(second, values):
        if ONSET <= second < ONSET + 20:
            values[2, COLUMN["data_wait_seconds"]] += 0.3
        elif second >= ONSET + 20:
            values[2, COLUMN["data_wait_seconds"]] += 0.02

    alerts, _, _ = watch(SyntheticJob().frames(ONSET + 50, change))
    assert opened(alerts) == [("data_stall", [2])]
    assert alerts[-1].state == "resolved"
    assert alerts[-1].end_ns <= (ONSET + 40) * 10**9
