"""Nondeterministic functions in SQL expressions."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"'[^']*'|`[^`]*`")
_CHANGING = re.compile(
    r"(?<![\w.])(?:(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id|now|curdate"
    r"|unix_timestamp(?=\s*\(\s*\)))\s*\(|(current_timestamp|current_date|current_time|localtimestamp)\b)",
    re.IGNORECASE,
)
"""Spark's nondeterministic functions; those of the clock are also called without brackets."""


def changing(text: str) -> str | None:
    """The first nondeterministic function in an expression; None if there is none.

    Examples:
        >>> changing("day = CURRENT_DATE"), changing("name = 'now()'"), changing("rand() < 0.1")
        ('current_date', None, 'rand')
    """
    called = _CHANGING.search(_QUOTED.sub("''", text))
    return (called[1] or called[2]).lower() if called else None
