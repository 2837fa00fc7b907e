"""Values of csv and json files that are read as strings first, so that a cast loses nothing silently."""

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
from helios.sources.common.spark.types import PLAIN, ZONE
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark.text_lines import UTF8, encoding_of
from helios.spark.jvm.classes import classes

_TIMES, _DOUBLES = (DateType, TimestampType, TimestampNTZType), (FloatType, DoubleType)
FORMATTED: Mapping[str, type[DataType]] = {
    "dateFormat": DateType,
    "timestampFormat": TimestampType,
    "timestampNTZFormat": TimestampNTZType,
}
"""The types of which an option says the format; Spark's parser makes them, which takes nothing else then."""

NUMBERS = {"nanValue": "NaN", "positiveInf": "Infinity", "negativeInf": "-Infinity"}
"""Options that say how a number of csv is written, and how Spark's cast has it."""

READ_AS_TEXT: Mapping[str, tuple[type[DataType], ...]] = {
    "text": (),
    "csv": PLAIN,
    "json": READ_AS_TEXT_IN_JSON,
}
"""By format of text, the types whose values Spark's parser leaves as texts, as it would round, cut or guess them."""


PLAINLY: Mapping[str, frozenset[str]] = {
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
"""By format of text, the options beside which a plain line means what it means without any."""


PLAIN_SEPARATORS = frozenset({",", ";", "|", "\t", "\\t"})


def has_plain_lines(source: FilesSource) -> bool:
    """True if plain lines may be read in one pass: no option changes what they mean."""
    options = source.reader_options()
    known = PLAINLY.get(source.format)
    if known is None or source.flag("multiLine") or not options.keys() <= known:
        return False
    if source.format == "csv":
        signs = options.get("quote", "") + options.get("escape", "")
        separator = options.get("sep", options.get("delimiter", ","))
        if source.rescued or not signs.isascii() or separator not in PLAIN_SEPARATORS:
            return False
    return encoding_of(options).lower() in UTF8


def texts(source: FilesSource) -> tuple[type[DataType], ...]:
    """The types whose values are read as strings first."""
    formatted = [kind for option, kind in FORMATTED.items() if option in source.reader_options()]
    return tuple(kind for kind in READ_AS_TEXT[source.format] if kind not in formatted)


def as_cast(value: Column, kind: DataType, source: FilesSource) -> Column:
    """Texts in the form of Spark's casts, from the form that options of the source declare.

    Args:
        value: A value, whose inner ones are texts where they are read so.
        kind: Its type with the types that texts stand for.
        source: The source.
    """
    if not _is_written(kind, source):
        return value
    if isinstance(kind, StructType):
        fields = [as_cast(value.getField(f.name), f.dataType, source).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda one: as_cast(one, element, source))
    if isinstance(kind, MapType):
        held = kind.valueType
        return F.transform_values(value, lambda _, one: as_cast(one, held, source))
    options = source.reader_options()
    if isinstance(kind, TimestampType):
        return _zoned(value, options["timeZone"])
    if isinstance(kind, DecimalType):
        return _decimal(value, options["locale"])
    for option, name in NUMBERS.items():
        value = F.when(value == options[option], name).otherwise(value) if option in options else value
    return value


def _is_written(kind: DataType, source: FilesSource) -> bool:
    """True if an option of a source determines how values of a type, or inside it, are written."""
    if isinstance(kind, StructType):
        return any(_is_written(field.dataType, source) for field in kind.fields)
    if isinstance(kind, (ArrayType, MapType)):
        return _is_written(kind.elementType if isinstance(kind, ArrayType) else kind.valueType, source)
    options = source.reader_options()
    if isinstance(kind, TimestampType):
        return "timeZone" in options and "timestampFormat" not in options
    if isinstance(kind, DecimalType):
        return "locale" in options
    return source.format == "csv" and isinstance(kind, _DOUBLES) and any(option in options for option in NUMBERS)


def _zoned(value: Column, zone: str) -> Column:
    """A time with its time zone; a time that the zone skips in spring is invalid."""
    clean = F.regexp_replace(value, r"^[\x00-\x20]+|[\x00-\x20]+$", "")
    # Behind a zone's name Spark's cast wants all of the time.
    whole = (
        F.when(clean.rlike(r"^[+-]?\d+-\d+-\d+$"), F.concat(clean, F.lit(" 00:00:00")))
        .when(clean.rlike(r"^\S+[T ]\d+:\d+$"), F.concat(clean, F.lit(":00")))
        .otherwise(clean)
    )
    # The session is in UTC, where a time without a zone keeps its hours.
    local = F.try_to_timestamp(whole)
    skipped = F.from_utc_timestamp(F.to_utc_timestamp(local, zone), zone) != local
    none = F.concat(F.lit(f"no time in {zone}: "), value)
    return F.when(value.rlike(ZONE), value).when(skipped, none).otherwise(F.concat(whole, F.lit(f" {zone}")))


def _decimal(value: Column, locale: str) -> Column:
    """A number in the form of a locale, converted to a point and no separators; other texts are not numbers."""
    jvm = classes()
    symbols = jvm.java.text.DecimalFormatSymbols.getInstance(jvm.java.util.Locale.forLanguageTag(locale))
    apart, point = re.escape(str(symbols.getGroupingSeparator())), re.escape(str(symbols.getDecimalSeparator()))
    number = rf"^[\x00-\x20]*[+-]?(\d{{1,3}}({apart}\d{{3}})+|\d+|(?={point}\d))({point}\d*)?[\x00-\x20]*$"
    plain = F.regexp_replace(F.regexp_replace(value, apart, ""), point, ".")
    return F.when(value.rlike(number), plain).otherwise(F.concat(F.lit("no number: "), value))


def refuse_decimals(source: FilesSource, columns: StructType) -> None:
    """Refuses decimals of json with a locale: a number and a text would be read alike, and differ in value.

    Raises:
        InputError: There are some.
    """
    if source.format == "json" and "locale" in source.reader_options() and "decimal(" in columns.simpleString():
        raise InputError(
            f"{source.label()}: with the option locale, a decimal of json may be a number or a text of the locale.",
            where=source.origin,
            fix="leave the option out, declare the column as string, and convert it with a step.",
        )
