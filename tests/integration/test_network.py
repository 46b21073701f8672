"""TCP between two network namespaces, joined by a link of known speed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest

from eacgm.producers.toolchain import tracefs

pytestmark = pytest.mark.ebpf

#: 20 Mbit/s, a queue of 60 kB in front of it
_SHAPE = ["tbf", "rate", "20mbit", "burst", "16kb", "limit", "{limit}"]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def ends(driver):
    """Two drivers, each in a network namespace of its own, at 10.77.0.1 and 10.77.0.2."""
    names = [f"eacgm-{os.getpid()}-{side}" for side in "ab"]
    if os.geteuid() or shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("network namespaces need root, ip and tc (apt-get install iproute2)")
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        try:
            ip("-n", names[0], "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", names[1])
        except subprocess.CalledProcessError:
            pytest.skip("this kernel has no veth")
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "veth0")
            ip("-n", name, "link", "set", "veth0", "up")
        yield *(driver(prefix=["ip", "netns", "exec", name]) for name in names), names
    finally:
        for name in made:
            ip("netns", "del", name)


def shape(name, limit):
    try:
        command = ["tc", "qdisc", "replace", "dev", "veth0", "root", *" ".join(_SHAPE).format(limit=limit).split()]
        subprocess.run(["ip", "netns", "exec", name, *command], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("this kernel has no token bucket filter")


def connect(client, server):
    server.run("s = socket.create_server(('10.77.0.2', 0))")
    port = server.run("print(s.getsockname()[1])")
    client.run(f"c = socket.create_connection(('10.77.0.2', {port}))")
    server.run("d, _ = s.accept()")


@pytest.fixture
def sent_again():
    """Count the packets that 10.77.0.1 sent again, as the kernel's own trace tells them."""
    folder = tracefs() / "instances" / f"eacgm-{os.getpid()}"
    folder.mkdir()
    switch = folder / "events/tcp/tcp_retransmit_skb/enable"
    switch.write_text("1")
    yield lambda: (folder / "trace").read_text().count(" saddr=10.77.0.1 ")
    switch.write_text("0")
    folder.rmdir()


def test_bytes_and_retransmits_of_a_slow_link_are_told_at_both_its_ends(tracer, ends, sent_again):
    client, server, names = ends
    for one in (client, server):
        tracer.watch(one.pid)
    connect(client, server)
    tracer.collect()
    shape(names[0], "20kb")  # a queue this short drops
    server.start("n = sum(iter(lambda: len(d.recv(65536)), 0)); print(n)")
    client.run("c.sendall(b'x' * 3_000_000); c.close()")
    assert server.wait() == "3000000"
    time.sleep(0.1)
    seen = tracer.collect().observations
    sender, receiver = seen[client.pid], seen[server.pid]
    assert sender.peers.peer_address == ["10.77.0.2"]
    assert receiver.peers.peer_address == ["10.77.0.1"]
    assert sender.peers.peer_sent_bytes.tolist() == [3_000_000] == [sender.host.net_sent_bytes]
    assert receiver.peers.peer_received_bytes.tolist() == [3_000_000] == [receiver.host.net_received_bytes]
    assert sender.host.net_retransmits == sender.peers.peer_retransmits.sum() > 0
    # the kernel passes over a program where its interrupt came upon another one
    assert sender.host.net_retransmits == pytest.approx(sent_again(), rel=0.01)
    for one in (client, server):
        tracer.unwatch(one.pid)


def test_the_round_trip_time_is_the_one_that_the_kernel_tells_the_process(tracer, ends):
    client, server, names = ends
    connect(client, server)
    tracer.watch(client.pid)  # after the connection was made
    shape(names[0], "1mb")
    server.start("n = sum(iter(lambda: len(d.recv(65536)), 0))")
    client.run("import struct; c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)")
    client.run("rtt = lambda: struct.unpack_from('<I', c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 68)[0]")
    client.run("c.sendall(b'x' * 500_000); told = [rtt()]")
    tracer.collect()
    client.run("for _ in range(50): c.sendall(b'x' * 20_000); told.append(rtt())")
    seen = tracer.collect().observations[client.pid]
    least, most = (int(client.run(f"print({which}(told))")) * 1e-6 for which in ("min", "max"))
    assert least > 0.001, "the queue is empty"
    assert least * 0.99 <= seen.host.net_rtt_seconds <= most * 1.01
    assert seen.peers.peer_rtt_seconds.tolist() == [seen.host.net_rtt_seconds]
    client.run("c.close()")
    server.wait()
    tracer.unwatch(client.pid)


def test_a_connection_too_short_to_be_learnt_is_laid_to_its_peer_when_it_closes(tracer, ends):
    client, server, _ = ends
    for one in (client, server):
        tracer.watch(one.pid)
    tracer.collect()
    connect(client, server)
    client.run("c.sendall(b'x' * 23); c.close()")
    assert server.run("print(len(d.recv(100))); d.close()") == "23"
    time.sleep(0.1)
    seen = tracer.collect().observations
    assert (seen[client.pid].peers.peer_address, seen[server.pid].peers.peer_address) == (["10.77.0.2"], ["10.77.0.1"])
    assert seen[server.pid].peers.peer_received_bytes.tolist() == [23]
    for one in (client, server):
        tracer.unwatch(one.pid)
