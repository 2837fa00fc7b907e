"""Checks the values of options of Spark's readers (Spark 4.1: `CSVOptions`, `JSONOptions`, `TextOptions`, ...)."""

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
"""Options that take one character, or an empty text, which switches the option off."""

INTEGERS = frozenset({"inputBufferSize", "maxCharsPerColumn", "maxColumns"})
"""Options that take a positive integer; `maxCharsPerColumn` also takes -1, for no bound."""

SEPARATORS = frozenset({"delimiter", "sep"})

SEPARATOR = re.compile(r"""(?:[^\\]|\\[tbrf"'\\])+""", re.DOTALL)
"""Any characters, with backslashes only in escapes that Spark knows."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "datetimeRebaseMode": ("CORRECTED", "EXCEPTION", "LEGACY"),
    "int96RebaseMode": ("CORRECTED", "EXCEPTION", "LEGACY"),
    "unescapedQuoteHandling": (
        "BACK_TO_DELIMITER", "RAISE_ERROR", "SKIP_VALUE", "STOP_AT_CLOSING_QUOTE", "STOP_AT_DELIMITER",
    ),
}  # fmt: skip
"""Options that take one of these values; for `unescapedQuoteHandling`, Spark ignores case."""

FREE_TEXTS = frozenset({
    "avroSchema", "charset", "dateFormat", "emptyValue", "encoding", "locale", "nanValue", "negativeInf", "nullValue",
    "positiveInf", "timeZone", "timestampFormat", "timestampNTZFormat",
})  # fmt: skip
"""Options that take any text, or a name that only Java can check."""


def check_value(option: str, text: str, file_format: str, where: Origin | None = None) -> None:
    """Raises a `DeclarationError` for a value with which Spark's reader would stop the run."""
    problem = next((check(option, text, file_format) for names, check in CHECKS if option in names), None)
    if problem is not None:
        message, fix = problem
        raise DeclarationError(f"option({option}={text!r}): {message}", where=where, fix=fix)


def _check_boolean(option: str, text: str, file_format: str) -> tuple[str, str | None] | None:
    if text.lower() in ("true", "false"):
        return None
    return f"it is neither true nor false. {near_miss(text, ('true', 'false'))}", "give True or False."


def _check_character(option: str, text: str, file_format: str) -> tuple[str, str | None] | None:
    if len(text) <= 1:
        return None
    return f"the option takes one character, and the value has {len(text)}.", 'give one character, or "" for none.'


def _check_integer(option: str, text: str, file_format: str) -> tuple[str, str | None] | None:
    may_be_unbounded = option == "maxCharsPerColumn"
    if may_be_unbounded and text == "-1":
        return None
    if re.fullmatch(r"[+-]?\d{1,9}", text) and int(text) >= 1:
        return None
    unbounded = ", or -1 for no bound" if may_be_unbounded else ""
    return "the option takes a positive whole number.", f"give a number, such as {option}=20000{unbounded}."


def _check_separator(option: str, text: str, file_format: str) -> tuple[str, str | None] | None:
    if SEPARATOR.fullmatch(text):
        return None
    if not text:
        return "a separator has at least one character.", 'give one, such as sep=";", or leave it out for a comma.'
    return (
        "after a backslash only t, b, r, f, a quote or another backslash may follow.",
        r'write sep="\\\\" for a backslash, and sep="\t" for a tab.',
    )


def _check_line_separator(option: str, text: str, file_format: str) -> tuple[str, str | None] | None:
    if text and (file_format != "csv" or len(text) <= 2):
        return None
    length = "one or two characters" if file_format == "csv" else "at least one character"
    return f"a line separator has {length}.", "correct it, or leave lineSep out: then \\n, \\r\\n and \\r end a line."


def _check_ratio(option: str, text: str, file_format: str) -> tuple[str, str | None] | None:
    if re.fullmatch(r"\d*\.?\d+(?:[eE]-?\d+)?", text) and 0 < float(text) <= 1:
        return None
    return "the option takes a share of the rows.", "give a number above 0, up to 1."


def _check_choice(option: str, text: str, file_format: str) -> tuple[str, str | None] | None:
    known = CHOICES[option]
    if (text.upper() if option == "unescapedQuoteHandling" else text) in known:
        return None
    return f"the value is unknown. {near_miss(text, known)}", None


Check = Callable[[str, str, str], "tuple[str, str | None] | None"]
"""Takes an option, its value and the format; returns the problem with the value and its fix, or None."""

CHECKS: tuple[tuple[frozenset[str], Check], ...] = (
    (BOOLEANS, _check_boolean),
    (CHARACTERS, _check_character),
    (INTEGERS, _check_integer),
    (SEPARATORS, _check_separator),
    (frozenset({"lineSep"}), _check_line_separator),
    (frozenset({"samplingRatio"}), _check_ratio),
    (frozenset(CHOICES), _check_choice),
)
"""The check of each option; an option of `FREE_TEXTS` has none."""
