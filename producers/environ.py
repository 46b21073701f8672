"""The allow-listed names of a process's environment, read so that nothing else of it is kept.

``/proc/PID/environ`` is read into one buffer, which is overwritten with zeros before the reader returns: the
secrets that stand there never become Python objects.
"""

from __future__ import annotations

from eacgm.producers.identity import allowed

#: twice the longest string that Linux lets into an environment (MAX_ARG_STRLEN)
_BUFFER_BYTES = 256 * 1024


class EnvironReader:
    """Reads environments one after the other through one buffer; not for several threads at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._buffer = bytearray(_BUFFER_BYTES)

    def read(self, pid: int) -> dict[str, str] | None:
        """Return the allow-listed variables of a process, None if it is gone.

        Raises ``PermissionError`` where it may not be read.
        """
        view = memoryview(self._buffer)
        found: dict[str, str] = {}
        filled = used = 0
        try:
            with open(f"{self._root}/proc/{pid}/environ", "rb", buffering=0) as file:
                # a string that fills the whole buffer cannot be: there the reading ends
                while count := file.readinto(view[filled:]):
                    filled += count
                    used = max(used, filled)
                    whole = self._buffer.rfind(b"\0", 0, filled) + 1
                    found = allowed(view[:whole]) | found
                    # what follows the last NUL is the beginning of an entry whose rest is still to come
                    view[: filled - whole] = view[whole:filled]
                    filled -= whole
            return allowed(view[:filled]) | found
        except PermissionError:
            raise
        except OSError:
            return None
        finally:
            view[:used] = bytes(used)
