"""Reads values of csv and json files as strings first, so that the cast to their type loses nothing silently."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from helios.errors import InputError
from helios.sources.common.spark.json_values import READ_AS_TEXT_IN_JSON
from helios.sources.common.spark.types import SCALARS, ZONE
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark.text_lines import UTF8, encoding_of
from helios.spark.jvm.classes import classes

_DOUBLES = (FloatType, DoubleType)

FORMATTED: Mapping[str, type[DataType]] = {
    "dateFormat": DateType,
    "timestampFormat": TimestampType,
    "timestampNTZFormat": TimestampNTZType,
}
"""The options that declare the format of a type. If the option is set, Spark's parser converts the type's values."""

NOT_FINITE = {"nanValue": "NaN", "positiveInf": "Infinity", "negativeInf": "-Infinity"}
"""The csv options for the texts of numbers that are not finite, each with the text that Spark's cast accepts."""

READ_AS_TEXT: Mapping[str, tuple[type[DataType], ...]] = {
    "text": (),
    "csv": SCALARS,
    "json": READ_AS_TEXT_IN_JSON,
}
"""For each text format, the types that are read as strings. Spark's parser would round, cut or guess the values."""

PLAIN_OPTIONS: Mapping[str, frozenset[str]] = {
    "json": frozenset({
        "encoding", "charset", "lineSep", "multiLine", "samplingRatio", "primitivesAsString", "prefersDecimal",
        "inferTimestamp", "dropFieldIfAllNull", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes",
        "allowNumericLeadingZeros", "allowNonNumericNumbers", "allowBackslashEscapingAnyCharacter",
        "allowUnquotedControlChars",
    }),
    "csv": frozenset({
        "encoding", "charset", "lineSep", "multiLine", "sep", "delimiter", "quote", "escape", "header", "inferSchema",
        "samplingRatio", "preferDate", "enforceSchema", "inputBufferSize", "unescapedQuoteHandling",
    }),
}  # fmt: skip
"""The options of each text format that do not change the meaning of a plain line (see `PlainCsv` and `PlainJson`)."""

PLAIN_SEPARATORS = frozenset({",", ";", "|", "\t", "\\t"})
"""The separators that a plain line of csv may have."""


def has_plain_lines(source: FilesSource) -> bool:
    """Returns True if no option changes the meaning of plain lines, so that they can be read in one pass."""
    options = source.reader_options()
    harmless = PLAIN_OPTIONS.get(source.format)
    if harmless is None or source.flag("multiLine") or not options.keys() <= harmless:
        return False
    if source.format == "csv":
        quoting = options.get("quote", "") + options.get("escape", "")
        separator = options.get("sep", options.get("delimiter", ","))
        if source.rescued or not quoting.isascii() or separator not in PLAIN_SEPARATORS:
            return False
    return encoding_of(options).lower() in UTF8


def text_types(source: FilesSource) -> tuple[type[DataType], ...]:
    """The types whose values a source reads as strings first."""
    formatted = [kind for option, kind in FORMATTED.items() if option in source.reader_options()]
    return tuple(kind for kind in READ_AS_TEXT[source.format] if kind not in formatted)


def as_cast_text(value: Column, kind: DataType, source: FilesSource) -> Column:
    """Rewrites the texts of a value from the form that the options declare to the form that Spark's casts accept.

    Args:
        value: A text, or a nested value with texts, for the types that are read as strings.
        kind: The type that the value will be cast to.
    """
    if not _has_declared_form(kind, source):
        return value
    if isinstance(kind, StructType):
        fields = [as_cast_text(value.getField(f.name), f.dataType, source).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda item: as_cast_text(item, element, source))
    if isinstance(kind, MapType):
        value_type = kind.valueType
        return F.transform_values(value, lambda _, item: as_cast_text(item, value_type, source))
    options = source.reader_options()
    if isinstance(kind, TimestampType):
        return _zoned(value, options["timeZone"])
    if isinstance(kind, DecimalType):
        return _decimal(value, options["locale"])
    for option, text in NOT_FINITE.items():
        if option in options:
            value = F.when(value == options[option], text).otherwise(value)
    return value


def _has_declared_form(kind: DataType, source: FilesSource) -> bool:
    """Returns True if an option declares how the values of a type, or of a type inside it, are written."""
    if isinstance(kind, StructType):
        return any(_has_declared_form(field.dataType, source) for field in kind.fields)
    if isinstance(kind, (ArrayType, MapType)):
        return _has_declared_form(kind.elementType if isinstance(kind, ArrayType) else kind.valueType, source)
    options = source.reader_options()
    if isinstance(kind, TimestampType):
        return "timeZone" in options and "timestampFormat" not in options
    if isinstance(kind, DecimalType):
        return "locale" in options
    return source.format == "csv" and isinstance(kind, _DOUBLES) and any(option in options for option in NOT_FINITE)


def _zoned(value: Column, zone: str) -> Column:
    """Adds a time zone to a text with a time. If the zone skips the time in spring, no cast accepts the result."""
    clean = F.regexp_replace(value, r"^[\x00-\x20]+|[\x00-\x20]+$", "")
    # Spark's cast accepts the name of a zone only after a time with hours, minutes and seconds.
    complete = (
        F.when(clean.rlike(r"^[+-]?\d+-\d+-\d+$"), F.concat(clean, F.lit(" 00:00:00")))
        .when(clean.rlike(r"^\S+[T ]\d+:\d+$"), F.concat(clean, F.lit(":00")))
        .otherwise(clean)
    )
    # The session is in UTC, so that a time without a zone keeps its hours.
    local = F.try_to_timestamp(complete)
    skipped = F.from_utc_timestamp(F.to_utc_timestamp(local, zone), zone) != local
    invalid = F.concat(F.lit(f"no time in {zone}: "), value)  # no cast accepts this text
    return F.when(value.rlike(ZONE), value).when(skipped, invalid).otherwise(F.concat(complete, F.lit(f" {zone}")))


def _decimal(value: Column, locale: str) -> Column:
    """Turns a number in a locale's form, as `1.234,5`, into `1234.5`; other texts become one that no cast accepts."""
    jvm = classes()
    symbols = jvm.java.text.DecimalFormatSymbols.getInstance(jvm.java.util.Locale.forLanguageTag(locale))
    group, point = re.escape(str(symbols.getGroupingSeparator())), re.escape(str(symbols.getDecimalSeparator()))
    number = rf"^[\x00-\x20]*[+-]?(\d{{1,3}}({group}\d{{3}})+|\d+|(?={point}\d))({point}\d*)?[\x00-\x20]*$"
    plain = F.regexp_replace(F.regexp_replace(value, group, ""), point, ".")
    return F.when(value.rlike(number), plain).otherwise(F.concat(F.lit("no number: "), value))


def refuse_decimals(source: FilesSource, columns: StructType) -> None:
    """Refuses decimals of json with a locale, since the number 1.234 and the text "1.234" could have different values.

    Raises:
        InputError: The source has the option locale, and a decimal among its columns.
    """
    if source.format == "json" and "locale" in source.reader_options() and "decimal(" in columns.simpleString():
        raise InputError(
            f"{source.label()}: with the option locale, a decimal of json may be a number or a text of the locale.",
            where=source.origin,
            fix="leave the option out; or declare the column as string, and convert it with a step.",
        )
