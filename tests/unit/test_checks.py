"""What doctor answers."""

import socket
import struct
import threading
from pathlib import Path

import pytest

from eacgm.cli import checks
from eacgm.cli.checks import ABSENT, LIMITED, MISSING, OK, Check, check_kafka, check_readings, judge_privileges

FIXTURES = Path(__file__).parent / "fixtures"
ALL = (1 << 41) - 1


def without(*bits):
    return ALL & ~sum(1 << bit for bit in bits)


SYS_ADMIN, SYS_PTRACE, DAC_READ_SEARCH, PERFMON, BPF = 21, 19, 2, 38, 39


@pytest.mark.parametrize(
    ("effective", "user", "status", "words"),
    [
        (ALL, 0, OK, "root"),
        (without(SYS_ADMIN), 1000, OK, "CAP_BPF"),
        (
            without(SYS_ADMIN, BPF),
            1000,
            MISSING,
            "without CAP_BPF: pytorch, collective, cuda, python, scheduler and TCP cannot",
        ),
        (without(SYS_ADMIN, SYS_PTRACE), 1000, LIMITED, "without CAP_SYS_PTRACE: no layer of other users' ranks"),
        (without(SYS_ADMIN, DAC_READ_SEARCH), 1000, LIMITED, "tracefs"),
        (without(BPF, PERFMON), 1000, OK, "CAP_BPF"),
        (0, 1000, MISSING, "CAP_BPF and CAP_PERFMON: pytorch"),
    ],
)
def test_privileges_say_what_cannot_be_seen_without_them(effective, user, status, words):
    check = judge_privileges(effective, user)
    assert check.status == status
    assert words in check.detail


def test_readings_of_an_old_kernel_are_told_with_their_remedy():
    found = {check.name: check for check in check_readings(str(FIXTURES / "node_v1"))}
    assert (found["pressure"].status, found["pressure"].remedy) == (ABSENT, "boot with psi=1")
    assert found["I/O delay"].status == LIMITED
    assert found["cgroups"].detail.endswith("1 and 2")


def test_readings_of_a_new_kernel_are_all_there():
    assert {check.status for check in check_readings(str(FIXTURES / "node_v2"))} == {OK}


def test_no_cgroups_is_told(tmp_path):
    assert {check.name: check.status for check in check_readings(str(tmp_path))}["cgroups"] == ABSENT


def serve(answer):
    """Answer one connection with bytes made from the request; return the address."""
    server = socket.create_server(("127.0.0.1", 0))

    def one():
        with server:
            client, _ = server.accept()
            with client:
                answered = answer(client.recv(1000))
                if answered:
                    client.sendall(answered)

    thread = threading.Thread(target=one)
    thread.start()
    return f"127.0.0.1:{server.getsockname()[1]}", thread


def test_a_broker_that_answers_is_reachable():
    def answer(request):
        size, key, version, correlation = struct.unpack(">ihhi", request[:12])
        assert (size, key, version) == (len(request) - 4, 18, 0)
        return struct.pack(">iihi", 10, correlation, 0, 0)

    address, thread = serve(answer)
    assert check_kafka(address).status == OK
    thread.join()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"", b"\0\0"])
def test_something_else_that_listens_is_no_broker(answer):
    address, thread = serve(lambda _: answer)
    check = check_kafka(address)
    thread.join()
    assert check.status == MISSING
    assert "does not speak Kafka" in check.detail or "reset" in check.detail


def test_a_second_address_counts_when_the_first_is_dead():
    address, thread = serve(lambda request: struct.pack(">iihi", 10, struct.unpack(">i", request[8:12])[0], 0, 0))
    assert check_kafka(f"127.0.0.1:1,{address}").status == OK
    thread.join()


@pytest.mark.parametrize("address", ["nowhere", "host:", "host:99999", ":9092"])
def test_an_address_that_is_none_is_told(address):
    check = check_kafka(address)
    assert check.status == MISSING
    assert "is no host:port" in check.detail


def test_a_live_demo_needs_every_check_of_the_machine(monkeypatch):
    answers = [Check("kernel", OK, "6.6"), Check("tracefs", MISSING, "not mounted", "mount it")]
    monkeypatch.setattr(checks, "_machine_checks", lambda: iter(answers))
    last = list(checks.all_checks(None))[-1]
    assert (last.name, last.status) == ("live demo", MISSING)
    assert "tracefs" in last.detail
    assert "replay" in last.remedy
