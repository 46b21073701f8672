from dataclasses import replace

from specimens import specimen

from eacgm.schemas import schemas
from eacgm.schemas.cloudevents import alert_headers

ALERT = replace(
    specimen(schemas()["eacgm.alerts.v1"]),
    job="züri/7",
    id="a1",
    incident="i1",
    state="open",
    detected_at_ns=1_700_000_000_250_000_000,
    resolved_at_ns=None,
)


def test_an_alert_has_the_attributes_of_a_cloud_event():
    assert dict(alert_headers(ALERT)) == {
        "ce_specversion": b"1.0",
        "ce_id": b"a1",
        "ce_source": b"/eacgm/jobs/z%C3%BCri%2F7",
        "ce_type": b"io.eacgm.alert.open",
        "ce_subject": b"i1",
        "ce_time": b"2023-11-14T22:13:20.250Z",
        "content-type": b"application/avro",
    }


def test_a_resolution_happens_when_it_was_resolved():
    resolved = replace(ALERT, state="resolved", resolved_at_ns=1_700_000_060_000_000_000)
    headers = dict(alert_headers(resolved))
    assert headers["ce_type"] == b"io.eacgm.alert.resolved"
    assert headers["ce_time"] == b"2023-11-14T22:14:20.000Z"
