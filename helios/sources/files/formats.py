"""The formats of file sources, the options of their readers, and the checks of these options."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from helios.errors import DeclarationError, Origin, near_miss
from helios.model.arguments import TIMESTAMPS, one_of
from helios.model.values import caller

CODECS = ("gz", "bz2", "zst", "snappy", "lz4", "deflate")
"""The endings of compressed text files that Hadoop's codecs know."""


class FileFormat(NamedTuple):
    """A format of files.

    Attributes:
        options: The options of Spark's reader, by name (Spark 4.1: `CSVOptions`, `JSONOptions`, `ParquetOptions`, ...).
        parsed: Whether rows are parsed from text, which can fail.
        stores_types: Whether each file stores the types of its columns, as parquet does.
        jars: Components of `helios.environment.coordinates` that the format needs.
    """

    options: tuple[str, ...]
    parsed: bool = False
    stores_types: bool = False
    jars: tuple[str, ...] = ()


_TIMES = (
    "dateFormat", "timestampFormat", "timestampNTZFormat", "timeZone", "locale",
)  # fmt: skip
_TEXT = ("encoding", "charset", "lineSep", "multiLine")

FORMATS: Mapping[str, FileFormat] = {
    "parquet": FileFormat(options=("datetimeRebaseMode", "int96RebaseMode"), stores_types=True),
    "csv": FileFormat(
        options=(
            *_TIMES, *_TEXT, "sep", "delimiter", "quote", "escape", "charToEscapeQuoteEscaping", "comment", "header",
            "inferSchema", "samplingRatio", "preferDate", "enforceSchema", "ignoreLeadingWhiteSpace",
            "ignoreTrailingWhiteSpace", "nullValue", "emptyValue", "nanValue", "positiveInf", "negativeInf",
            "maxColumns", "maxCharsPerColumn", "inputBufferSize", "unescapedQuoteHandling",
        ),
        parsed=True,
    ),
    "json": FileFormat(
        options=(
            *_TIMES, *_TEXT, "primitivesAsString", "prefersDecimal", "inferTimestamp", "dropFieldIfAllNull",
            "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros",
            "allowNonNumericNumbers", "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars",
        ),
        parsed=True,
    ),
    "avro": FileFormat(options=("avroSchema", "datetimeRebaseMode"), stores_types=True, jars=("avro",)),
    "orc": FileFormat(options=(), stores_types=True),
    "text": FileFormat(options=("wholetext", "lineSep", "encoding"), parsed=True),
}  # fmt: skip
"""The formats, by name."""

ENDINGS: Mapping[str, str] = {
    "parquet": "parquet", "pq": "parquet", "csv": "csv", "tsv": "csv", "json": "json", "jsonl": "json",
    "ndjson": "json", "avro": "avro", "orc": "orc", "txt": "text", "log": "text",
}  # fmt: skip
"""The format of each ending of a file name."""

DEFAULT_OPTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {"csv": (("header", "true"), ("escape", '"'))}
"""Helios's defaults of options. A quote inside quotes is doubled, as in RFC 4180; Spark expects a backslash."""

_BAD_ROW = 'say what happens to rows that do not parse with .on_bad_row("fail"/"quarantine"/"drop"/"null").'
_BAD_FILE = 'say what happens to such files with .on_bad_file("fail"/"quarantine").'
_NO_FALLBACK = "leave it out: values are read by dateFormat and timestampFormat, else by Spark's casts."
_IN_PATH = "write it into the path, as a glob."
_GLOB_ONLY = "leave it out: only a glob in the path chooses files."
_FOLLOWED = "leave it out: a followed folder has its own log of the files that were read."
REFUSED: Mapping[str, str] = {
    "mode": _BAD_ROW,
    "columnNameOfCorruptRecord": _BAD_ROW,
    "badRecordsPath": _BAD_ROW,
    "enableDateTimeParsingFallback": _NO_FALLBACK,
    "ignoreCorruptFiles": _BAD_FILE,
    "ignoreMissingFiles": 'say what happens to a planned file that is gone with .on_missing("fail"/"skip").',
    "mergeSchema": "leave it out: the columns of all files are always united, by name.",
    "basePath": "leave it out: folders such as day=2026-01-01 below the path become columns.",
    "recursiveFileLookup": "leave it out: folders below the path are always read.",
    "pathGlobFilter": _IN_PATH,
    "modifiedBefore": _GLOB_ONLY,
    "modifiedAfter": _GLOB_ONLY,
    "maxFilesPerTrigger": "write .incremental(max_files=...).",
    "maxFileAge": _FOLLOWED,
    "latestFirst": _FOLLOWED,
    "fileNameOnly": _FOLLOWED,
    "cleanSource": _FOLLOWED,
    "compression": "leave it out: the codec follows from each file's extension.",
    "singleVariantColumn": 'read the file as text, and parse it with a step: with_columns(v="parse_json(value)").',
}
"""Spark's options that would silently drop or change rows, or that Helios handles itself. Each has its fix."""


def ending_of(name: str) -> str:
    """The ending of a file name that determines the format: the last one that is not the ending of a codec.

    Examples:
        >>> ending_of("a.csv.gz"), ending_of("part-0.snappy.parquet"), ending_of("a")
        ('csv', 'parquet', '')
    """
    parts = name.rstrip("*").lower().split(".")[1:]
    while len(parts) > 1 and parts[-1] in CODECS:
        parts.pop()
    return parts[-1] if parts else ""


def format_of(name: str) -> str | None:
    """The format of a file according to its name; None if the ending is unknown.

    Examples:
        >>> format_of("events.jsonl.zst"), format_of("README")
        ('json', None)
    """
    return ENDINGS.get(ending_of(name))


def option_text(name: str, value: object, where: Origin | None = None) -> str:
    """The value of an option as the text that Spark takes.

    Examples:
        >>> option_text("header", True), option_text("maxColumns", 5)
        ('true', '5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise DeclarationError(
        f"option({name}={value!r}): the value is {type(value).__name__}.",
        where=where,
        fix="give text, a number, True or False.",
    )


def option_name(name: str, file_format: str, where: Origin | None = None) -> str:
    """Spark's spelling of an option of a format.

    Raises:
        DeclarationError: The format does not have the option, or Helios does not pass the option to Spark.
    """
    known = {option.lower(): option for option in FORMATS[file_format].options}
    if name.lower() in known:
        return known[name.lower()]
    refused = {option.lower(): fix for option, fix in REFUSED.items()}
    if name.lower() in refused:
        raise DeclarationError(
            f"option({name}=...) of {file_format} files is not passed to Spark.", where=where, fix=refused[name.lower()]
        )
    prefixes = [option for option in known.values() if len(option) > 2 and name.lower().startswith(option.lower())]
    others = [other for other, traits in FORMATS.items() if name.lower() in map(str.lower, traits.options)]
    if prefixes:
        hint = f"Did you mean {max(prefixes, key=len)!r}?"
    elif others:
        hint = f"It is an option of {' and '.join(others)}."
    else:
        hint = near_miss(name, known.values())
    raise DeclarationError(f"option({name}=...): {file_format} files have no such option. {hint}", where=where)


QUOTE_HANDLINGS = ("STOP_AT_DELIMITER", "STOP_AT_CLOSING_QUOTE")
"""The allowed ways to handle a quote that is not doubled. Spark's other ways lose data or stop the run."""

NANOS = re.compile(r"S{7}|n|N")
"""The letters of a time format for digits below a microsecond. Spark drops such digits."""


def refuse_values(options: Mapping[str, str], where: Origin | None = None) -> None:
    """Raises `DeclarationError` for option values that silently lose data, alone or together; includes the defaults."""
    handling = options.get("unescapedQuoteHandling", QUOTE_HANDLINGS[0])
    if handling.upper() not in QUOTE_HANDLINGS:
        raise DeclarationError(
            f"option(unescapedQuoteHandling={handling!r}): with it, Spark drops quotes or values, or stops the run.",
            where=where,
            fix=f"write {' or '.join(QUOTE_HANDLINGS)}, and say what happens to bad rows with .on_bad_row.",
        )
    separator = options.get("sep", options.get("delimiter", ","))
    empty_options = [name for name in ("emptyValue", "nullValue") if name in options]
    if len(separator) > 1 and not separator.startswith("\\") and empty_options:
        raise DeclarationError(
            f"option({empty_options[0]}=...) with a separator of several characters, {separator!r}: Spark reads an "
            "empty last field as an empty text, if the field before is quoted.",
            where=where,
            fix=f"leave {empty_options[0]} out, and convert with a step: with_columns(c=\"nullif(c, '...')\").",
        )
    if not separator.startswith("\\") and separator[:1] in separator[1:] and len(set(separator)) > 1:
        raise DeclarationError(
            f"option(sep={separator!r}): its first character occurs twice, so that Spark may not find the separator.",
            where=where,
            fix="read the file as text, and split the lines with a step.",
        )
    for name in ("timestampFormat", "timestampNTZFormat"):
        if NANOS.search(re.sub("'[^']*'", "", options.get(name, ""))):
            raise DeclarationError(
                f"option({name}={options[name]!r}): Spark truncates to microseconds.",
                where=where,
                fix="write at most SSSSSS; or leave the option out: then values that are not ISO 8601 are bad.",
            )


def refuse_policies_without_schema(path: str, schema: object, policies: Mapping[str, bool]) -> None:
    """Raises `DeclarationError` if a policy for undeclared columns is set (True) without declared columns."""
    policy = next((name for name, is_set in policies.items() if is_set), None)
    if schema is None and policy is not None:
        raise DeclarationError(
            f"Files.source({path!r}): {policy}= applies to columns that schema= lacks, and there is no schema=.",
            where=caller(),
            fix=f"pass schema=, or leave {policy}= out.",
        )


def refuse_timestamps(path: str, format: str, unit: str) -> None:
    """Refuses an unknown unit of timestamps, and a unit other than "s" if no timestamps are read from numbers.

    `format` is empty if no columns are declared, or if an option says how timestamps are written.

    Raises:
        DeclarationError: The unit is refused.
    """
    if one_of(unit, TIMESTAMPS, "timestamps") != "s" and format != "json":
        raise DeclarationError(
            f"Files.source({path!r}): timestamps= applies to json numbers in columns that schema= declares as "
            "timestamps, without the option timestampFormat.",
            where=caller(),
            fix="leave timestamps= out; or read json with schema=, and leave timestampFormat out.",
        )


def real_path(path: str) -> str:
    """A path with links and `..` resolved if it is local; any other path unchanged."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        return path
    return os.path.realpath(parts.path if parts.scheme else path)
