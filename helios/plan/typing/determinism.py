"""Finds SQL that is not deterministic: functions that depend on chance, on the clock, or on the distribution of rows.

The functions are found among the tokens of a text, not in a syntax tree, so that the text need not be parsable.
Strings, comments and quoted names are no calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SPREAD = "the spread of rows over tasks"
"""The cause that is given for functions whose values depend on the distribution of rows over tasks."""
NONDETERMINISTIC: Mapping[str, str] = {
    **dict.fromkeys(("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"), "chance"),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id"), SPREAD),
    **dict.fromkeys(
        ("now", "curdate", "current_date", "current_time", "current_timestamp", "localtimestamp", "unix_timestamp"),
        "the clock",
    ),
    **dict.fromkeys(("reflect", "java_method", "try_reflect"), "what a Java method does"),
}
"""Spark's functions that may return another value in each run, each with the cause. A seed does not help: the value
also depends on the tasks that process the rows."""

BARE = frozenset({"current_date", "current_time", "current_timestamp", "localtimestamp"})
"""The nondeterministic functions that can be called without parentheses."""

WITHOUT_ARGUMENTS = frozenset({"unix_timestamp"})
"""The functions that are nondeterministic only if they are called without arguments."""

MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})
"""The texts that Spark converts to a date or a timestamp by the clock."""

_TIMES = frozenset({"date", "timestamp", "timestamp_ntz", "timestamp_ltz"})
_CONVERTERS = frozenset({"to_date", "to_timestamp", "try_to_date", "try_to_timestamp", *_TIMES})
_SAMPLE = "tablesample"
_SUSPECT = re.compile(rf"\b({'|'.join(sorted({*NONDETERMINISTIC, *MOMENTS, _SAMPLE}))})\b", re.IGNORECASE)
"""A text without any of these words is deterministic. The search saves the import of the tokenizer (0.3 s)."""


def nondeterministic_function(text: str) -> str | None:
    """The first nondeterministic part of an expression, a query or a MERGE, as a message names it.

    Returns:
        The function, `TABLESAMPLE`, or a moment of the clock such as `'today'`; None if the text is deterministic.

    Examples:
        >>> nondeterministic_function("day = CURRENT_DATE"), nondeterministic_function("rand() < 0.1")
        ('current_date()', 'rand()')
        >>> nondeterministic_function("SELECT * FROM input TABLESAMPLE (10 PERCENT)")
        'TABLESAMPLE'
        >>> nondeterministic_function("day < DATE 'today'")
        "'today'"
        >>> nondeterministic_function("name = 'now()' AND unix_timestamp(ts) > 0")
    """
    return next(iter(_nondeterministic_parts(text)), None)


def _nondeterministic_parts(text: str) -> list[str]:
    suspect = _SUSPECT.search(text)
    if suspect is None:
        return []
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        # With the parenthesis, a text that begins with a word such as SHOW is not read as one command.
        tokens = Spark().tokenize(f"({text}")
    except SqlglotError:
        return [f"{suspect[1].lower()}()"]  # it may be a call
    calls = (_nondeterministic(tokens, at) for at in range(len(tokens)))
    return [name for name in calls if name is not None]


def spread_function(texts: Iterable[str]) -> str | None:
    """The first function in SQL texts whose value depends on the distribution of rows over tasks, or None.

    Examples:
        >>> spread_function(["rand()", "rand() + spark_partition_id()"])
        'spark_partition_id()'
    """
    parts = (part for text in texts for part in _nondeterministic_parts(text))
    return next((part for part in parts if NONDETERMINISTIC.get(part.removesuffix("()")) == SPREAD), None)


def nondeterministic_part(texts: Iterable[str]) -> str | None:
    """The first nondeterministic part of some SQL texts; None if there is none."""
    return next(filter(None, map(nondeterministic_function, texts)), None)


def _nondeterministic(tokens: Sequence[Any], at: int) -> str | None:
    """The nondeterministic part that starts at a token; None if none does."""
    before, word, after = (_text(tokens, index) for index in (at - 1, at, at + 1))
    if _is_string(tokens[at]):
        return f"'{word.strip()}'" if word.strip() in MOMENTS and _is_time(tokens, at) else None
    if word == _SAMPLE:
        return word.upper() if after == "(" else None
    if word not in NONDETERMINISTIC or before == ".":
        return None
    if after == "(":
        return f"{word}()" if word not in WITHOUT_ARGUMENTS or _text(tokens, at + 2) == ")" else None
    return f"{word}()" if word in BARE and tokens[at].token_type.name != "IDENTIFIER" else None


def _is_time(tokens: Sequence[Any], at: int) -> bool:
    """True if a string becomes a date or a timestamp: as a literal of such a type, by a cast, or by a function."""
    before, after, second_after = (_text(tokens, index) for index in (at - 1, at + 1, at + 2))
    if before in _TIMES:
        return True
    if after in ("as", "::") and second_after in _TIMES:
        return True
    return before == "(" and after == ")" and _text(tokens, at - 2) in _CONVERTERS


def _text(tokens: Sequence[Any], at: int) -> str:
    return str(tokens[at].text).lower() if 0 <= at < len(tokens) else ""


def _is_string(token: Any) -> bool:
    return str(token.token_type.name).endswith("STRING")
