import json
import threading

from eacgm.events import AlertEvent, FrameEvent, HostEvent
from eacgm.producers.simulation import simulate
from eacgm.producers.simulation_plan import ClusterPlan, parse_faults
from eacgm.schemas.recording import RecordingReader, RecordingWriter
from eacgm.streams.alert import to_json
from eacgm.streams.embedded import EmbeddedShell
from eacgm.streams.replay import replay

SECOND = 1_000_000_000


def told(second, rank):
    at = second * SECOND
    return HostEvent(
        job="j", rank=rank, node="a", start_ns=at, end_ns=at + SECOND, published_ns=at + SECOND, cpu_seconds=0.5
    )


def test_a_replay_of_a_run_gives_the_same_alerts_byte_for_byte(tmp_path):
    plan = ClusterPlan(n_ranks=4, seconds=90, seed=3)
    plan = ClusterPlan(n_ranks=4, seconds=90, seed=3, faults=parse_faults(["slow_compute@2:50-80"], plan))
    live = []
    with EmbeddedShell(recorder=RecordingWriter(tmp_path / "r"), callbacks=[live.append]) as shell:
        for event in simulate(plan):
            shell.publish(event)
    again = list(replay(RecordingReader(tmp_path / "r")))

    def alerts(events):
        return [json.dumps(to_json(e)) for e in events if isinstance(e, AlertEvent)]

    assert alerts(live) == alerts(again)
    assert live == again
    assert alerts(live), "a rank that computes at half its speed must raise an alert"


def test_many_threads_may_publish_at_once(tmp_path):
    out = []
    shell = EmbeddedShell(recorder=RecordingWriter(tmp_path / "r"), callbacks=[out.append])
    barrier = threading.Barrier(4)

    def publish(rank):
        for second in range(20):
            barrier.wait()
            shell.publish(told(second, rank))

    threads = [threading.Thread(target=publish, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shell.finish()
    frames = [e for e in out if isinstance(e, FrameEvent)]
    assert [f.start_ns // SECOND for f in frames] == list(range(20))
    assert all(f.present == [True] * 4 for f in frames[1:])
    assert len(list(RecordingReader(tmp_path / "r"))) == 80


def test_the_clock_closes_what_is_idle():
    now, out = [0], []
    shell = EmbeddedShell(callbacks=[out.append], clock_ns=lambda: now[0])
    shell.publish(told(0, 0))
    shell.tick()
    assert out == []
    now[0] = 40 * SECOND
    shell.tick()
    assert len(out) == 1


def test_after_the_end_nothing_is_taken():
    out = []
    shell = EmbeddedShell(callbacks=[out.append])
    shell.publish(told(0, 0))
    shell.finish()
    shell.finish()
    shell.publish(told(1, 0))
    shell.tick()
    assert len(out) == 1
    assert shell.statistics().events == 1
