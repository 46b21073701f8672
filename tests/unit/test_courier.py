"""Posts to a real HTTP server that fails in every way it can."""

import json
import socket
from pathlib import Path

import pytest
from receiver import Receiver

from eacgm.errors import EacgmError
from eacgm.sinks.address import parse
from eacgm.sinks.courier import Courier
from eacgm.sinks.forms import Post


class Patience:
    """Simulated time: pauses are noted and over at once; after ``hours`` it is given up."""

    def __init__(self, hours=1.0):
        self.pauses, self.limit, self.seconds, self.told = [], hours * 3600, 0.0, []

    def wait(self, seconds):
        self.pauses.append(seconds)
        self.seconds += seconds
        return self.seconds > self.limit

    def courier(self, address, refused=None):
        return Courier(address, refused=refused, tell=self.told.append, wait=self.wait, now=lambda: self.seconds)


def posts(url, count=3):
    return [Post(f"{url}/hook", json.dumps({"id": number}).encode()) for number in range(count)]


def test_troubles_that_pass_are_waited_for_and_the_order_is_kept():
    patience = Patience()
    with Receiver([503, 500, None, (429, {"Retry-After": "30"}), 200, 502]) as receiver:
        courier = patience.courier(parse(f"webhook={receiver.url}/hook"))
        assert all(courier.deliver(post) for post in posts(receiver.url))
        assert [body["id"] for body in receiver.bodies] == [0, 0, 0, 0, 0, 1, 1, 2]
    assert (courier.delivered, courier.retried, courier.refused) == (3, 5, 0)
    assert patience.pauses[3] == 30.0
    assert 0.5 <= patience.pauses[0] <= 1.0 <= patience.pauses[1] <= 2.0 <= patience.pauses[2] <= 4.0
    assert len(patience.told) == 4  # troubles and their end, twice; not every try


def test_a_sink_that_is_away_for_an_hour_misses_nothing():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    patience, opened = Patience(hours=2.0), []

    def wait(seconds):
        if patience.seconds < 3600 <= patience.seconds + seconds:
            opened.append(Receiver(port=port))
        return patience.wait(seconds)

    courier = Courier(
        parse(f"webhook=http://127.0.0.1:{port}/"), refused=None, tell=patience.told.append, wait=wait, now=lambda: 0.0
    )
    assert all(courier.deliver(post) for post in posts(f"http://127.0.0.1:{port}"))
    with opened[0] as receiver:
        assert [body["id"] for body in receiver.bodies] == [0, 1, 2]
    assert max(patience.pauses) <= 60.0
    assert courier.delivered == 3


def test_what_is_refused_for_good_is_kept_and_the_rest_goes_on(tmp_path):
    patience, kept = Patience(), tmp_path / "refused.jsonl"
    with Receiver([400, 200, (302, {"Location": "/elsewhere"})]) as receiver:
        courier = patience.courier(parse(f"webhook={receiver.url}/hook?token=secret"), kept)
        for body in ({"id": 0, "routing_key": "secret"}, {"id": 1}, {"id": 2}):
            assert courier.deliver(Post(f"{receiver.url}/hook?token=secret", json.dumps(body).encode()))
        assert len(receiver.posts) == 3
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(line["body"]["id"], line["reason"]) for line in lines] == [
        (0, "answered 400 (said)"),
        (2, "answered 302 (said)"),
    ]
    assert "secret" not in kept.read_text() + " ".join(patience.told)
    assert courier.refused == 2


def test_giving_up_and_a_file_that_cannot_be_written_are_told():
    patience = Patience(hours=0.0)
    with Receiver([503, 404]) as receiver:
        courier = patience.courier(parse(f"webhook={receiver.url}/"))
        assert not courier.deliver(posts(receiver.url, 1)[0])
        nowhere = patience.courier(parse(f"webhook={receiver.url}/"), Path("/nowhere/refused"))
        with pytest.raises(EacgmError, match="/nowhere/refused"):
            nowhere.deliver(posts(receiver.url, 1)[0])
