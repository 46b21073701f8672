"""What every run of the tests tells at its end: how many eBPF and Kafka tests ran, and how many could not."""

import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # started in the background of a shell: the programs under test would inherit that they cannot be interrupted
    signal.signal(signal.SIGINT, signal.default_int_handler)

_NAMES = {"ebpf": "eBPF", "kafka": "Kafka"}
_COUNTS = {marker: {"run": 0, "skipped": 0} for marker in _NAMES}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    for marker, counts in _COUNTS.items():
        if item.get_closest_marker(marker) is None:
            continue
        if report.skipped and not hasattr(report, "wasxfail"):
            counts["skipped"] += 1
        elif report.when == "call":
            counts["run"] += 1


def pytest_terminal_summary(terminalreporter):
    for marker, counts in _COUNTS.items():
        if any(counts.values()):
            terminalreporter.write_line(f"{_NAMES[marker]} tests: {counts['run']} run, {counts['skipped']} skipped")
