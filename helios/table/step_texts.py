"""The texts of steps, as a kept plan has them."""

from __future__ import annotations

import re

OPEN, CLOSE, QUOTES = "([{", ")]}", "'\"`"
RAW = re.compile(r"\br['\"]|--|/\*", re.IGNORECASE)
"""Raw texts and comments, in which quotes and brackets mean nothing: the arguments of such a step are not known."""


def arguments(text: str) -> list[str]:
    """The arguments of a step's text, or of those within its brackets.

    Examples:
        >>> arguments("day=cast(ts as date), k=concat(a, ', ')")
        ['day=cast(ts as date)', "k=concat(a, ', ')"]
    """
    found, depth, quote, escaped, begun = [], 0, "", False, 0
    for place, char in enumerate(text):
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
            found.append(text[begun:place].strip())
            begun = place + 1
    return [*found, text[begun:].strip()]
