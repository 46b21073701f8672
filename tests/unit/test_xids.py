"""XIDs of the kernel log and of NVML."""

import pytest

from eacgm.producers.kernel_log import kernel_messages
from eacgm.producers.xids import MAX_XIDS, Xid, XidLedger, parse_xid

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("message", "address", "xid"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.", (0, 0x3B, 0), Xid(79)),
        ("NVRM: Xid (PCI:0001:AF:00): 31, pid=77, name=python, MMU Fault", (1, 0xAF, 0), Xid(31)),
        ("NVRM: Xid (0000:03:00): 48, DBE", (0, 3, 0), Xid(48)),
        ("NVRM: Xid (PCI:00000000:9b:00.0): 63", (0, 0x9B, 0), Xid(63)),
        (
            "NVRM: Xid (PCI:0000:9b:00): 145, RLW_SRC_TRACK Nonfatal XC0 i0 Link 05 (0x004c2186 0x8d200000 0x0)",
            (0, 0x9B, 0),
            Xid(145, nonfatal=True, subcode=4),
        ),
        (
            "NVRM: Xid (PCI:0000:9b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 02 (0x00a02186 0x0 0x0)",
            (0, 0x9B, 0),
            Xid(149, nonfatal=False, subcode=10),
        ),
        ("NVRM: Xid (PCI:0000:9b:00): 150, cut off", (0, 0x9B, 0), Xid(150)),
        # only NVLink5's lines say it reliably: another code's text is the program's
        ("NVRM: Xid (PCI:0000:9b:00): 79, name=nonfatal (0x00a02186", (0, 0x9B, 0), Xid(79)),
    ],
)
def test_a_line_tells_device_code_severity_and_subcode(message, address, xid):
    assert parse_xid(message) == (address, xid)


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: loading",
        "NVRM: Xid (PCI:zz:3b:00): 79",
        "name=NVRM: Xid (PCI:0000:3b:00): 79,",
        "NVRM: Xid (PCI:0000:3b:00): ,",
    ],
)
def test_other_messages_tell_none(message):
    assert parse_xid(message) is None


def test_what_user_space_wrote_is_no_kernel_message():
    text = "3,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79\n SUBSYSTEM=pci\n11,2,3,-;NVRM: Xid (PCI:0000:3b:00): 48\n"
    assert kernel_messages(text) == ["NVRM: Xid (PCI:0000:3b:00): 79"]


def codes(ledger, kernel, nvml, second=0):
    taken = ledger.take([("a", xid) for xid in kernel], [("a", code) for code in nvml], second * SECOND)
    return taken["a"].fatal if taken else []


def test_an_error_that_both_witnesses_tell_is_told_once_in_either_order():
    for first, second in ((([Xid(79)], []), ([], [79])), (([], [79]), ([Xid(79)], []))):
        ledger = XidLedger()
        assert codes(ledger, *first) == [79]
        assert codes(ledger, *second, 1) == []
    assert codes(XidLedger(), [Xid(79)], [79]) == [79]


def test_repeats_are_told_as_often_as_they_happen():
    ledger = XidLedger()
    assert codes(ledger, [Xid(63), Xid(63)], [63]) == [63, 63]
    assert codes(ledger, [], [63, 63], 1) == [63]
    assert codes(ledger, [], [], 2) == []
    assert codes(ledger, [], [63], 60) == [63]


def test_a_witness_that_missed_errors_hides_no_later_one():
    ledger = XidLedger()
    assert codes(ledger, [Xid(63)] * 5, [63]) == [63] * 5
    assert codes(ledger, [], [63], 20) == [63]


def test_nonfatal_errors_stand_apart_and_nvml_does_not_make_them_fatal():
    taken = XidLedger().take([("a", Xid(145, True, 4)), ("a", Xid(149, False, 10))], [("a", 145), ("a", 149)], 0)["a"]
    assert (taken.fatal, taken.nonfatal, taken.subcodes) == ([149], [145], ["145.4", "149.10"])


def test_a_storm_is_cut_off_and_counted():
    taken = XidLedger().take([("a", Xid(63))] * (MAX_XIDS + 7), [], 0)["a"]
    assert (len(taken.told), taken.beyond) == (MAX_XIDS, 7)
