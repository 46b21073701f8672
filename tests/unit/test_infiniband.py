import numpy as np
import pytest

from eacgm.producers.infiniband import PortReader


def write_port(root, name, state, **counters):
    device, port = name.split("/")
    folder = root / "sys/class/infiniband" / device / "ports" / port
    for kind in ("counters", "hw_counters"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text(f"{state}\n")
    for counter, value in counters.items():
        kind = "hw_counters" if counter in ("packet_seq_err", "local_ack_timeout_err") else "counters"
        (folder / kind / counter).write_text(f"{value}\n")


def test_growth_is_told_in_bytes_and_a_port_that_went_down_is_told(tmp_path):
    reader = PortReader(str(tmp_path))
    write_port(tmp_path, "mlx5_0/1", "4: ACTIVE", port_xmit_data=100, port_rcv_data=7, link_downed=0, symbol_error=5)
    first = reader.read()
    assert (first.port_name, first.port_active.tolist()) == (["mlx5_0/1"], [1])
    assert np.isnan(first.port_sent_bytes).all()
    write_port(tmp_path, "mlx5_0/1", "1: DOWN", port_xmit_data=350, port_rcv_data=8, link_downed=1, symbol_error=7)
    told = reader.read()
    assert told.port_active.tolist() == [0]
    assert (told.port_sent_bytes.tolist(), told.port_received_bytes.tolist()) == ([1000.0], [4.0])
    assert (told.port_link_downs.tolist(), told.port_errors.tolist()) == ([1.0], [2.0])


def test_counters_that_a_device_lacks_are_unknown_and_not_zero(tmp_path):
    reader = PortReader(str(tmp_path))
    for value in (3, 4):
        write_port(tmp_path, "hns_0/1", "4: ACTIVE", port_xmit_data="N/A (no PMA)", packet_seq_err=value)
        told = reader.read()
    assert told.port_retransmits.tolist() == [1.0]
    assert told.port_sent_bytes.tolist() == pytest.approx([np.nan], nan_ok=True)
    assert told.port_link_downs.tolist() == pytest.approx([np.nan], nan_ok=True)


def test_ports_keep_their_own_counters_and_a_counter_that_was_reset_is_unknown(tmp_path):
    reader = PortReader(str(tmp_path))
    for first, second in ((10, 100), (11, 5)):
        write_port(tmp_path, "mlx5_0/1", "4: ACTIVE", port_rcv_data=first)
        write_port(tmp_path, "mlx5_0/2", "4: ACTIVE", port_rcv_data=second)
        told = reader.read()
    assert told.port_name == ["mlx5_0/1", "mlx5_0/2"]
    assert told.port_received_bytes.tolist() == pytest.approx([4.0, np.nan], nan_ok=True)


def test_a_node_without_such_ports_tells_none(tmp_path):
    assert PortReader(str(tmp_path)).read().port_name == []
