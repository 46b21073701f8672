import subprocess
import sys

import pytest

PROGRAM = """
import faust
from eacgm.cli.worker import serve
from eacgm.errors import EacgmError
try:
    serve(faust.App("nobody", broker="kafka://127.0.0.1:1"), verbose=False)
except EacgmError as error:
    print(f"told: {error}")
"""


@pytest.mark.parametrize("debug", [False, True])
def test_a_worker_whose_kafka_is_gone_as_it_starts_shows_no_traceback(debug):
    environment = {"EACGM_DEBUG": "1"} if debug else {}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert "told: " in done.stdout, done.stderr
    assert "127.0.0.1" in done.stderr
    assert ("Traceback" in done.stderr) == debug
    if not debug:
        assert all(line[:4].isdecimal() for line in done.stderr.splitlines()), done.stderr
