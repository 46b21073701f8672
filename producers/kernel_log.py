"""The kernel's log from now on: messages of the kernel itself, read from /dev/kmsg without ever waiting.

Source: Documentation/ABI/testing/dev-kmsg. What user space writes there carries another facility and is left out, so
that nobody can feign a kernel message.
"""

from __future__ import annotations

import os

#: larger than any record
_RECORD_BYTES = 16 * 1024
#: records read at a time; more wait for the next time
MAX_RECORDS = 2000


class KernelLog:
    """``failure`` says why the log cannot be read, None if it can; ``overwritten`` whether it was just too fast."""

    def __init__(self, root: str) -> None:
        self.failure: str | None = None
        self.overwritten = False
        self._fd = -1
        try:
            self._fd = os.open(f"{root}/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            if self._fd < 0:
                self.failure = f"kernel log: {error.strerror}"

    def messages(self) -> list[str]:
        """Return what the kernel has logged since the last time."""
        found: list[str] = []
        self.overwritten = False
        for _ in range(MAX_RECORDS if self._fd >= 0 else 0):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # the oldest were overwritten before we came; the next read goes on behind the gap
                self.overwritten = True
                continue
            except OSError as error:
                self.failure = f"kernel log: {error.strerror}"
                self.close()
                break
            if not record:
                break
            found.extend(kernel_messages(record.decode("utf-8", "replace")))
        return found

    def close(self) -> None:
        """Let go of the log."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def kernel_messages(text: str) -> list[str]:
    r"""Return the messages of records ``priority,sequence,time,flags;message`` that are the kernel's own.

    >>> kernel_messages("4,12,34,-;from the kernel\n12,13,35,-;from user space\n")
    ['from the kernel']
    """
    found = []
    for line in text.splitlines():
        head, _, message = line.partition(";")
        priority = head.partition(",")[0]
        # the facility stands above the three bits of the level; the kernel's is 0
        if message and priority.isdigit() and int(priority) >> 3 == 0:
            found.append(message)
    return found
