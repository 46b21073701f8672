import json

import numpy as np
import pytest

from eacgm.errors import InputError
from eacgm.events import AlertEvent
from eacgm.streams.alert import to_json
from eacgm.streams.alert_lines import read_alerts
from eacgm.streams.comparison import compare, incidents

SECOND = 1_000_000_000


def alert(**fields):
    usual = {"job": "j", "incident": "i", "id": "a", "ranks": np.array([4]), "start_ns": 0, "end_ns": 1}
    return AlertEvent(**(usual | {"started_at_ns": 3 * SECOND + 123_456_789, "detected_at_ns": 5 * SECOND} | fields))


def test_what_json_printed_is_read_back_and_differs_in_nothing(tmp_path):
    alerts = [alert(), alert(id="b", state="resolved", resolved_at_ns=1_700_000_000_987_654_321, cause="hang")]
    path = tmp_path / "alerts.jsonl"
    lines = [json.dumps(to_json(one)) for one in alerts]
    path.write_text("\n".join([*lines, "", json.dumps({"difference": "new"})]) + "\n")
    back = list(read_alerts(path))
    assert [one.id for one in back] == ["a", "b"]
    assert compare(incidents(back), incidents(alerts)) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "line 1: is no JSON"),
        ("[1]", "line 1: is no alert; expected an object"),
        ('{"job": "j"}', "line 1: is no alert"),
        ('{"ranks": ["x"], "started_at": "now", "detected_at": ""}', "line 1: is no alert"),
        ("\xff\xfe", "line 1: is no JSON"),
    ],
)
def test_what_is_no_alert_is_refused_with_its_place(tmp_path, text, reason):
    path = tmp_path / "alerts.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=reason):
        list(read_alerts(path))


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        list(read_alerts(tmp_path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is no text"):
        list(read_alerts(tmp_path / "binary"))
