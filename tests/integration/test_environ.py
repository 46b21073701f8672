"""Secrets of a training process's environment do not stay in the agent's memory."""

import os
import subprocess
import sys

# Looks through its own writable memory for a secret that it was never told; `held`, a plain copy, proves the search.
SCANNER = r"""
import gc, re, sys
from eacgm.producers.environ import EnvironReader

def count():
    gc.collect()
    found = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            words = line.split()
            if not words[1].startswith("rw") or words[-1].startswith("[v"):
                continue
            start, end = (int(number, 16) for number in words[0].split("-"))
            memory.seek(start)
            try:
                found += len(re.findall(rb"hunter2-[0-9a-f]{32}", memory.read(end - start)))
            except OSError:
                continue
    return found

pid = int(sys.argv[1])
variables = EnvironReader("").read(pid)
clean = count()
held = open(f"/proc/{pid}/environ", "rb").read()
print(variables["RANK"], clean, count() > 0)
"""


def test_no_secret_is_left_in_memory_after_an_environment_was_read():
    secret = f"hunter2-{os.urandom(16).hex()}"
    rank = subprocess.Popen(["sleep", "60"], env={"TOKEN": secret, "RANK": "3", "API_KEY": secret, "WORLD_SIZE": "4"})
    try:
        scanner = subprocess.run(
            [sys.executable, "-c", SCANNER, str(rank.pid)], capture_output=True, text=True, timeout=120, check=True
        )
    finally:
        rank.kill()
        rank.wait()
    assert scanner.stdout.split() == ["3", "0", "True"]
