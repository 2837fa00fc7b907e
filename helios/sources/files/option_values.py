"""The values that options of Spark's readers take (Spark 4.1: `CSVOptions`, `JSONOptions`, `TextOptions`, ...)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from helios.errors import DeclarationError, Origin, near_miss

BOOLEANS = frozenset({
    "allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers", "allowNumericLeadingZeros",
    "allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames", "dropFieldIfAllNull",
    "enforceSchema", "header", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace",
    "inferSchema", "inferTimestamp", "multiLine", "preferDate", "prefersDecimal", "primitivesAsString", "wholetext",
})  # fmt: skip

CHARACTERS = frozenset({"charToEscapeQuoteEscaping", "comment", "escape", "quote"})
"""One character, or none, which switches it off."""

WHOLE = frozenset({"inputBufferSize", "maxCharsPerColumn", "maxColumns"})
"""Positive whole numbers; `maxCharsPerColumn` also -1, for no bound."""

SEPARATORS = frozenset({"delimiter", "sep"})

SEPARATOR = re.compile(r"""(?:[^\\]|\\[tbrf"'\\])+""", re.DOTALL)

WORDS: Mapping[str, tuple[str, ...]] = {
    "datetimeRebaseMode": ("CORRECTED", "EXCEPTION", "LEGACY"),
    "int96RebaseMode": ("CORRECTED", "EXCEPTION", "LEGACY"),
    "unescapedQuoteHandling": (
        "BACK_TO_DELIMITER", "RAISE_ERROR", "SKIP_VALUE", "STOP_AT_CLOSING_QUOTE", "STOP_AT_DELIMITER",
    ),
}  # fmt: skip
"""Closed sets; Spark takes those of `unescapedQuoteHandling` in any case."""

FREE = frozenset({
    "avroSchema", "charset", "dateFormat", "emptyValue", "encoding", "locale", "nanValue", "negativeInf", "nullValue",
    "positiveInf", "timeZone", "timestampFormat", "timestampNTZFormat",
})  # fmt: skip
"""Text of any kind, and names that only the Java in use knows."""


def check_value(option: str, text: str, chosen: str, where: Origin | None = None) -> None:
    """Refuses a value that Spark's reader would refuse, or stop at, once it reads.

    Args:
        option: Spark's name of the option.
        text: The value as Spark takes it.
        chosen: The format.
        where: The line that gives it.

    Raises:
        DeclarationError: The option takes no such value.
    """
    problem = next((check(option, text, chosen) for names, check in CHECKS if option in names), None)
    if problem is not None:
        what, fix = problem
        raise DeclarationError(f"option({option}={text!r}): {what}", where=where, fix=fix)


def _boolean(option: str, text: str, chosen: str) -> tuple[str, str | None] | None:
    if text.lower() in ("true", "false"):
        return None
    return f"it is neither true nor false. {near_miss(text, ('true', 'false'))}", "give True or False."


def _character(option: str, text: str, chosen: str) -> tuple[str, str | None] | None:
    if len(text) <= 1:
        return None
    return f"it is one character, and this is {len(text)}.", 'give one character, or "" for none.'


def _whole(option: str, text: str, chosen: str) -> tuple[str, str | None] | None:
    least = 1 if re.fullmatch(r"[+-]?\d{1,9}", text) and int(text) >= 1 else 0
    if least or (option == "maxCharsPerColumn" and text == "-1"):
        return None
    unbounded = ", or -1 for no bound" if option == "maxCharsPerColumn" else ""
    return "it is a positive whole number.", f"give one, such as {option}=20000{unbounded}."


def _separator(option: str, text: str, chosen: str) -> tuple[str, str | None] | None:
    if SEPARATOR.fullmatch(text):
        return None
    if not text:
        return "a separator has at least one character.", 'give one, such as sep=";", or leave it out for a comma.'
    return (
        "a backslash stands before t, b, r, f, a quote or another backslash.",
        r'write sep="\\\\" for a backslash, and sep="\t" for a tab.',
    )


def _line_separator(option: str, text: str, chosen: str) -> tuple[str, str | None] | None:
    if text and (chosen != "csv" or len(text) <= 2):
        return None
    most = "one or two characters" if chosen == "csv" else "at least one character"
    return f"the end of a line has {most}.", "give them, or leave it out: \\n, \\r\\n and \\r end a line then."


def _ratio(option: str, text: str, chosen: str) -> tuple[str, str | None] | None:
    if re.fullmatch(r"\d*\.?\d+(?:[eE]-?\d+)?", text) and 0 < float(text) <= 1:
        return None
    return "it is a share of the rows.", "give a number above 0, up to 1."


def _word(option: str, text: str, chosen: str) -> tuple[str, str | None] | None:
    known = WORDS[option]
    if (text.upper() if option == "unescapedQuoteHandling" else text) in known:
        return None
    return f"it is one of a few words. {near_miss(text, known)}", None


Check = Callable[[str, str, str], "tuple[str, str | None] | None"]

CHECKS: tuple[tuple[frozenset[str], Check], ...] = (
    (BOOLEANS, _boolean),
    (CHARACTERS, _character),
    (WHOLE, _whole),
    (SEPARATORS, _separator),
    (frozenset({"lineSep"}), _line_separator),
    (frozenset({"samplingRatio"}), _ratio),
    (frozenset(WORDS), _word),
)
"""The checks of option values, by options. Each gives the problem with a value, and the fix."""
