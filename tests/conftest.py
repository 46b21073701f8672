"""What every run of the tests tells at its end: how many eBPF tests ran, and how many could not."""

import pytest

_EBPF = {"run": 0, "skipped": 0}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if item.get_closest_marker("ebpf") is None:
        return
    if report.skipped and not hasattr(report, "wasxfail"):
        _EBPF["skipped"] += 1
    elif report.when == "call":
        _EBPF["run"] += 1


def pytest_terminal_summary(terminalreporter):
    if any(_EBPF.values()):
        terminalreporter.write_line(f"eBPF tests: {_EBPF['run']} run, {_EBPF['skipped']} skipped")
