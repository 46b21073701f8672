"""NVML for children of the tests: the library of nvml.c, and the file that says what it answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

_SERVER = """
import json, sys, time
print("ready", flush=True)
for line in sys.stdin:
    mode, _, code = line.partition(" ")
    if mode == "do":
        exec(json.loads(code))
        print("null", flush=True)
    else:
        print(json.dumps(eval(json.loads(code))), flush=True)
"""

GIB = 1024**3
#: everything that the stub can tell of one GPU
WHOLE = {
    "utilization": 87, "memory_activity": 40, "used": 32 * GIB, "power_mw": 312500, "limit_mw": 400000,
    "temperature": 61, "sm_mhz": 1410, "memory_mhz": 1593, "reasons": 0x4, "ecc": 0, "replays": 10,
    "field.38": 1, "field.45": 2, "field.52": 3, "field.59": 4, "field.197": 5_000_000, "field.198": 7_000_000,
    "mig": 0,
}  # fmt: skip


class Stub:
    """The built library and its state; ``environment`` makes a child find both."""

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state"
        source = Path(__file__).with_name("nvml.c")
        library = folder / "libnvidia-ml.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source], check=True)
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STATE": str(self._state)}
        self.tell({})

    def tell(self, *parts: dict[str, object], lines: tuple[str, ...] = ()) -> None:
        """Answer from now on so; ``lines`` are those of names that may come several times."""
        text = "".join(f"{name} {value}\n" for part in parts for name, value in part.items())
        new = self._state.with_suffix(".new")
        new.write_text(text + "".join(f"{line}\n" for line in lines))
        new.replace(self._state)


def gpu(index: int, **values: object) -> dict[str, object]:
    """Return the state of a whole GPU, with some values changed; ``field__38`` means ``field.38``."""
    changed = {name.replace("__", "."): value for name, value in values.items()}
    return {f"{index}.{name}": value for name, value in (WHOLE | changed).items() if value is not None}


class Child:
    """A Python process with the stub, which runs lines and answers expressions."""

    def __init__(self, stub: Stub) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env=stub.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready"

    def do(self, code: str) -> None:
        """Run statements."""
        self._send("do", code)

    def ask(self, expression: str) -> object:
        """Return an expression's value."""
        return self._send("ask", expression)

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()

    def _send(self, mode: str, code: str) -> object:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{mode} {json.dumps(code)}\n")
        self.process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the child has ended"
        return line
