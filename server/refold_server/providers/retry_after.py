"""Owns the reading of `Retry-After`: when a provider says that the next attempt makes sense. A pure function.

The header holds seconds (RFC 9110; fractions occur) or a date. Fractions are rounded up to whole seconds, a date in the
past means now, and what is neither is no statement at all. `retry-after-ms` (OpenAI) goes first where it is a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,20})?")


def retry_after_ms(headers: Mapping[str, str], now: float) -> int | None:
    """Give the milliseconds to wait, or None where the headers (names in lower case) say nothing that can be read.

    `now` is Unix time in seconds; where the answer has a `Date`, that clock is believed instead, since the date in
    `Retry-After` comes from the same one.
    """
    precise = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(precise):
        return math.ceil(float(precise))
    value = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(value):
        return math.ceil(float(value)) * 1000
    moment = _seconds_of_date(value)
    if moment is None:
        return None
    sent = _seconds_of_date(headers.get("date", ""))
    return max(0, math.ceil(moment - (now if sent is None else sent))) * 1000


def _seconds_of_date(text: str) -> float | None:
    try:
        date: datetime = parsedate_to_datetime(text)
        return (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):  # the parser's ways to say that this is no date
        return None
