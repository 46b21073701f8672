import urllib.error
import urllib.request

import pytest

from eacgm.errors import ConfigError
from eacgm.metrics import MetricsServer, Reading


def fetch(server, path):
    try:
        with urllib.request.urlopen(f"http://{server.address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_readings_are_read_anew_for_each_request():
    count = iter(range(100))

    def read():
        yield Reading("eacgm_things", "Things seen.", float(next(count)))
        yield Reading("eacgm_lag", "Behind.", {("a",): 2.0, ("b",): 3.0}, "gauge", ("topic",))

    with MetricsServer("127.0.0.1:0", read) as server:
        status, text = fetch(server, "/metrics")
        assert status == 200
        assert "eacgm_things_total 0.0" in text
        assert 'eacgm_lag{topic="b"} 3.0' in text
        assert "eacgm_things_total 1.0" in fetch(server, "/metrics")[1]


def test_health_is_told_with_its_reason():
    ill = []
    with MetricsServer("127.0.0.1:0", lambda: [], lambda: ill[0] if ill else None) as server:
        assert fetch(server, "/healthz") == (200, "ok\n")
        ill.append("no message for 60 s though 12 wait")
        assert fetch(server, "/healthz") == (503, "no message for 60 s though 12 wait\n")
        assert fetch(server, "/secrets")[0] == 404


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:http", "127.0.0.1:99999", "192.0.2.1:80"])
def test_an_address_that_cannot_be_had_is_told_in_one_line(address):
    with pytest.raises(ConfigError, match="expected a free HOST:PORT"):
        MetricsServer(address, lambda: [])
