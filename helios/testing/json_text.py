"""The JSON of values in a test's files and records, with all digits of decimals."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from typing import Any

from helios.errors import InputError

__tracebackhide__ = True

DECIMAL = "\ue000decimal "
"""The prefix of the text that stands for a decimal until the JSON is written, since a float would lose digits."""


def json_text(value: Any) -> str:
    """A value as JSON; a time is ISO text.

    Raises:
        InputError: JSON has no such value.

    Examples:
        >>> json_text({"amount": Decimal("12345678901234567.89"), "day": date(2026, 1, 5)})
        '{"amount": 12345678901234567.89, "day": "2026-01-05"}'
    """
    return re.sub(r'"\\ue000decimal ([^"]+)"', r"\1", json.dumps(value, default=_standing_in))


def _standing_in(value: Any) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        return f"{DECIMAL}{value:f}"
    if isinstance(value, date):  # or a datetime
        return value.isoformat().replace("+00:00", "Z")
    fix = "give text, finite numbers, lists and dicts; or the text or bytes of the whole file or record."
    raise InputError(f"JSON has no value for {value!r}.", fix=fix)
