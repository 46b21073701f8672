"""The doctor on this machine."""

import json

import pytest
from click.testing import CliRunner

from eacgm.cli.doctor import command

pytestmark = pytest.mark.ebpf


def test_every_line_is_json_and_the_verdict_is_the_last():
    result = CliRunner().invoke(command, ["--json"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(set(line) == {"name", "status", "detail", "remedy"} for line in lines)
    by_name = {line["name"]: line["status"] for line in lines}
    assert [by_name[name] for name in ("kernel", "privileges", "tracefs", "bcc", "programs")] == ["ok"] * 5
    assert lines[-1]["name"] == "live demo"
    assert (result.exit_code == 0) == (lines[-1]["status"] == "ok")


def test_the_doctor_does_not_load_bcc_into_its_own_process():
    result = CliRunner().invoke(command, [])
    assert "bcc" in result.stdout
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        assert "libbcc" not in maps.read()
