"""Splits the arguments in the text of a step, as a kept plan has the text."""

from __future__ import annotations

import re

OPEN, CLOSE, QUOTES = "([{", ")]}", "'\"`"
RAW_OR_COMMENT = re.compile(r"\br['\"]|--|/\*", re.IGNORECASE)
"""Matches raw strings and comments, whose backslashes, quotes and brackets `split_arguments` would take for syntax."""


def split_arguments(text: str) -> list[str]:
    """Splits a list of arguments, such as the part between the brackets of a step's text, at its commas.

    Examples:
        >>> split_arguments("day=cast(ts as date), k=concat(a, ', ')")
        ['day=cast(ts as date)', "k=concat(a, ', ')"]
    """
    parts, depth, quote, escaped, start = [], 0, "", False, 0
    for index, char in enumerate(text):
        if quote:
            if escaped or char == "\\":
                escaped = not escaped and char == "\\"
            elif char == quote:
                quote = ""
        elif char in QUOTES:
            quote = char
        elif char in OPEN or char in CLOSE:
            depth += 1 if char in OPEN else -1
        elif char == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]
