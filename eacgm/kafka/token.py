"""Bearer tokens that somebody else issues: passed through, with the expiry that they state."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka.abc import AbstractTokenProvider

#: a token that does not state its end is read again after this long
UNSTATED_LIFETIME_SECONDS = 300.0


def token_and_expiry(token: str) -> tuple[str, float]:
    """Return the token and when it ends (seconds since 1970), as librdkafka's callback wants them."""
    expiry = stated_expiry(token)
    return token, time.time() + UNSTATED_LIFETIME_SECONDS if expiry is None else expiry


def stated_expiry(token: str) -> float | None:
    """Return the ``exp`` of a JSON web token (seconds since 1970), None where it states none or is opaque.

    >>> stated_expiry("e30.eyJleHAiOjE3MDAwMDAwMDB9.")
    1700000000.0
    >>> stated_expiry("opaque") is None
    True
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None


def token_source(read: Callable[[], str]) -> AbstractTokenProvider:
    """Return aiokafka's provider of tokens: ``read`` is called for each."""
    from aiokafka.abc import AbstractTokenProvider

    class Source(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return read()

    return Source()
