from collections import namedtuple

from faust.types import TP

from eacgm.streams.batches import MOST_RECORDS, Batch, BatchScheduler

Record = namedtuple("Record", "topic partition offset timestamp")


def records(topic, partition, n):
    return [Record(topic, partition, offset, 1000 + offset) for offset in range(5, 5 + n)]


def test_input_topics_come_in_runs_and_others_one_by_one():
    host, calls, table = TP("eacgm.host.v1", 1), TP("eacgm.calls.v1", 1), TP("group-snapshots-changelog", 1)
    found = {host: records(*host, MOST_RECORDS + 3), calls: records(*calls, 2), table: records(*table, 2)}
    out = list(BatchScheduler().iterate(found))
    of_host = [record for tp, record in out if tp == host]
    assert [len(batch.value) for batch in of_host] == [MOST_RECORDS, 3]
    assert [record for batch in of_host for record in batch.value] == found[host]
    assert (of_host[1].offset, of_host[1].timestamp) == (5 + MOST_RECORDS, 1005 + MOST_RECORDS)
    assert [record for tp, record in out if tp == table] == found[table]
    (of_calls,) = [record for tp, record in out if tp == calls]
    assert isinstance(of_calls, Batch)
    # no topic waits for another's many
    assert out.index((calls, of_calls)) < out.index((host, of_host[1]))
