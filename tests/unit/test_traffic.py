import numpy as np
import pytest

from eacgm.producers import maps
from eacgm.producers.traffic import MAX_PEERS, LinkAccount, address_text


def links(**rows):
    """Entries of the map: peer's last octet (n7) -> sent, received, retransmits, sum of round trips, their count."""
    keys = np.zeros(len(rows), dtype=maps.PEER)
    values = np.zeros(len(rows), dtype=maps.LINK)
    for at, (name, row) in enumerate(rows.items()):
        last = int(name[1:])
        keys[at] = (1, 2, (10, 0, last // 256, last % 256, *[0] * 12))
        values[at] = row
    return keys, values


def test_each_peer_is_told_what_its_link_grew_by_and_the_rest_without_a_name():
    account = LinkAccount()
    account.collect(*links(n7=(100, 10, 1, 900, 3)), (100, 10, 1))
    told, rtt = account.collect(*links(n7=(150, 10, 2, 1300, 5), n8=(500, 0, 0, 0, 0)), (560, 5, 1))
    assert told.peer_address == ["10.0.0.8", "10.0.0.7", ""]
    assert told.peer_sent_bytes.tolist() == [500, 50, 10]
    assert told.peer_received_bytes.tolist() == [0, 0, 5]
    assert told.peer_retransmits.tolist() == [0, 1, 0]
    assert told.peer_rtt_seconds.tolist() == pytest.approx([np.nan, 2e-4, np.nan], nan_ok=True)
    assert rtt == pytest.approx(2e-4)


def test_a_link_without_traffic_is_not_told_and_one_that_the_kernel_dropped_begins_anew():
    account = LinkAccount()
    account.collect(*links(n7=(100, 10, 1, 900, 3), n8=(9, 9, 9, 9, 9)), (109, 19, 10))
    told, rtt = account.collect(*links(n7=(30, 0, 0, 0, 0), n8=(9, 9, 9, 9, 9)), (30, 0, 0))
    assert (told.peer_address, told.peer_sent_bytes.tolist(), rtt) == (["10.0.0.7"], [30], None)


def test_more_peers_than_can_be_told_are_told_together_and_no_byte_is_missing():
    rows = {f"n{number}": (1000 + number, 1, 0, 5, 1) for number in range(1, 301)}
    total = sum(row[0] for row in rows.values())
    told, _ = LinkAccount().collect(*links(**rows), (total, 300, 0))
    assert len(told.peer_address) == MAX_PEERS + 1
    assert told.peer_address[0] == "10.0.1.44"
    assert told.peer_address[-1] == ""
    assert (told.peer_sent_bytes.sum(), told.peer_received_bytes.sum()) == (total, 300)


def test_one_host_reached_over_both_protocols_is_one_peer():
    keys, values = links(n7=(100, 0, 0, 0, 0), n8=(50, 0, 0, 0, 0))
    keys[1] = (1, 10, (*[0] * 10, 255, 255, 10, 0, 0, 7))
    told, _ = LinkAccount().collect(keys, values, (150, 0, 0))
    assert (told.peer_address, told.peer_sent_bytes.tolist()) == (["10.0.0.7"], [150])


@pytest.mark.parametrize(
    ("family", "address", "text"),
    [(2, "7f000001", "127.0.0.1"), (10, "20010db8000000000000000000000001", "2001:db8::1"), (1, "", "")],
)
def test_addresses_are_written_as_usual(family, address, text):
    assert address_text(family, bytes.fromhex(address).ljust(16, b"\0")) == text
