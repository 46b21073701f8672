"""Posts reach their sink: a sink that is away is waited for, one that refuses is told why and where the post lies."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import IO, Any

from eacgm.errors import EacgmError
from eacgm.sinks.address import Address
from eacgm.sinks.forms import Post

REQUEST_SECONDS = 10.0
#: the first pause before a post is tried again, and the longest
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
#: answers after which trying again may help: too many requests, and the sink's own troubles
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_MOST_ANSWER_BYTES = 300


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A post that is sent elsewhere would arrive there as something else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow nothing."""


class Courier:
    """Delivers posts in their order; counts them in ``delivered``, ``retried`` and ``refused``."""

    def __init__(
        self,
        address: Address,
        *,
        refused: Path | None,
        tell: Callable[[str], None],
        wait: Callable[[float], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take where refused posts are kept (a file of JSON lines), how to ``tell`` of troubles, and how to wait.

        ``wait`` waits so many seconds and returns whether to give up; ``now`` is the clock (seconds) for what is told.
        """
        self._address = address
        self._file = refused
        self._tell = tell
        self._wait = wait
        self._now = now
        self._opener = urllib.request.build_opener(_NoRedirects())
        self._chance = random.Random()
        self.delivered = self.retried = self.refused = 0

    def deliver(self, post: Post) -> bool:
        """Deliver a post, however long the sink is away; return False if told to give up before.

        A post that the sink refuses for good goes to the file of the refused. Raises ``EacgmError`` where that file
        cannot be written: nothing is dropped in silence.
        """
        pause, began, told = FIRST_PAUSE_SECONDS, self._now(), False
        while True:
            obstacle, asked_seconds = self._try(post)
            if obstacle is None:
                self.delivered += 1
                if told:
                    self._tell(f"{self._address} takes alerts again after {self._now() - began:.0f} s")
                return True
            if asked_seconds is None:
                self._refuse(post, obstacle)
                return True
            if not told:
                self._tell(f"{self._address}: {obstacle}; trying again until it takes alerts")
                told = True
            self.retried += 1
            # spread, so that many do not come back in one moment
            if self._wait(max(asked_seconds, pause * self._chance.uniform(0.5, 1.0))):
                return False
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _try(self, post: Post) -> tuple[str | None, float | None]:
        """Return what is in the way (None: nothing) and the least pause in seconds (None: for good)."""
        request = urllib.request.Request(
            post.url,
            data=post.body,
            headers={"Content-Type": "application/json", "User-Agent": "eacgm", **post.headers},
            method="POST",
        )
        try:
            with self._opener.open(request, timeout=REQUEST_SECONDS) as answer:
                answer.read(_MOST_ANSWER_BYTES)
            return None, None
        except urllib.error.HTTPError as error:
            with error:
                text = " ".join(_read(error).split())
            obstacle = f"answered {error.code}" + (f" ({text})" if text else "")
            return obstacle, _asked_seconds(error.headers) if error.code in _PASSING else None
        except urllib.error.URLError as error:
            return f"not reached ({error.reason})", 0.0
        except (OSError, http.client.HTTPException) as error:
            return f"not reached ({error or type(error).__name__})", 0.0

    def _refuse(self, post: Post, reason: str) -> None:
        self.refused += 1
        if self._file is None:
            self._tell(f"{self._address} {reason}: the alert is left out; --refused FILE would keep it")
            return
        record: dict[str, Any] = {"reason": reason, "body": json.loads(post.body)}
        if isinstance(record["body"], dict):
            record["body"].pop("routing_key", None)  # a secret
        try:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise EacgmError(f"{self._file}: cannot be written ({error.strerror}); expected a file for posts") from None
        self._tell(f"{self._address} {reason}: the alert is kept in {self._file}")


def _read(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(_MOST_ANSWER_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""


def _asked_seconds(headers: Message | None) -> float:
    """Return the pause that an answer asks for, at most the longest; 0 if it names none in seconds."""
    text = (headers.get("Retry-After") if headers is not None else None) or ""
    return min(float(text), LONGEST_PAUSE_SECONDS) if text.isdecimal() else 0.0
