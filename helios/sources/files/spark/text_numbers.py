"""Infers the columns of csv files: a text becomes a number only if the number reproduces the text exactly.

`01234` may be an identifier, and `1.10` a version: as numbers they would be 1234 and 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, StringType, StructField, StructType

from helios.sources.common.file import File
from helios.sources.common.spark import rejects
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.types import NUMBERS, as_nullable
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark.columns import inferred_key
from helios.sources.files.spark.listing import loaded
from helios.sources.files.spark.text_lines import SKIP_NO_FILE
from helios.spark.jvm.sql import quoted

INTEGER = r"(0|-?[1-9]\d*)"
"""An integer in its canonical form."""

_DIGITS = r"(\.(\d*[1-9]|0))"
FRACTION = rf"-?((0|[1-9]\d*){_DIGITS}?|[1-9]{_DIGITS}?[eE][+-]\d{{1,3}}|[1-9]{_DIGITS}E([7-9]|[1-9]\d\d?))"
"""A double as C, Python, R or Java write it. An exponent has a sign, except Java's exponents of 7 or more."""

NOT_SIGNIFICANT = r"^[-0.]+|[eE].*|\D|0+$"
"""Matches the parts of a number's text that are not significant digits."""

MAX_DIGITS_OF_INTEGER = 15
"""The number of significant digits up to which a double represents every integer exactly."""

MAX_DIGITS_OF_DOUBLE = 17
"""The maximum number of significant digits with which programs write a double."""

NOT_FINITE = {"nanValue": "NaN", "positiveInf": "Inf", "negativeInf": "-Inf"}
"""The options for the texts of numbers that are not finite, with Spark's defaults."""

LEADING_ZEROS = r"^\s*[+-]?0\d"


def is_canonical(text: str, kind: DataType) -> bool:
    """Returns True if a text is exactly the canonical form of its number in a type.

    Examples:
        >>> texts = ["1234", "01234", "-5", "+5", "1.1", "1.10", "1.0", "12E5", "1e-05", "9007199254740993"]
        >>> [text for text in texts if is_canonical(text, DoubleType())]
        ['1234', '-5', '1.1', '1.0', '1e-05']
    """
    if not isinstance(kind, DoubleType):
        return re.fullmatch(INTEGER, text) is not None
    max_digits = MAX_DIGITS_OF_DOUBLE if re.search("[.eE]", text) else MAX_DIGITS_OF_INTEGER
    return re.fullmatch(FRACTION, text) is not None and len(re.sub(NOT_SIGNIFICANT, "", text)) <= max_digits


def leading_zeros_lost(text: Column, field: StructField) -> tuple[str, Column] | None:
    """For texts that lose leading zeros as a number, the reason and the condition; None if the type is no number."""
    if not isinstance(field.dataType, NUMBERS):
        return None
    kind = field.dataType.simpleString()
    why = f"{field.name} would lose its leading zeros as {kind}, the inferred type: declare it as string, or as {kind}"
    return why, F.coalesce(text.rlike(LEADING_ZEROS), F.lit(False))


def infer_csv(context: SourceContext, source: FilesSource, files: Sequence[File]) -> StructType:
    """The columns that Spark infers from all rows. A column is a string if a number would change one of its texts."""
    options = {"inferSchema": "true", **source.reader_options(), **SKIP_NO_FILE}
    reader = context.spark.read.format("csv").options(**options).option("columnNameOfCorruptRecord", rejects.TEXT)
    schema = loaded(context.spark, reader, files).schema
    columns = as_nullable(StructType([field for field in schema.fields if field.name != rejects.TEXT]))
    assert isinstance(columns, StructType)
    source_options = source.reader_options()
    numbers = [field for field in columns.fields if isinstance(field.dataType, NUMBERS)]
    if "locale" in source_options:
        numbers = [field for field in numbers if not isinstance(field.dataType, DecimalType)]
    if not numbers:
        return columns
    texts = StructType([StructField(field.name, StringType()) for field in columns.fields])
    reader = context.spark.read.format("csv").options(**{**options, "inferSchema": "false"}).schema(texts)
    not_finite = [source_options.get(option, default) for option, default in NOT_FINITE.items()]
    changed = [F.min(_changed_text(F.col(quoted(field.name)), field.dataType, not_finite)) for field in numbers]
    row = loaded(context.spark, reader, files).agg(*changed).first()
    examples = {field.name: text for field, text in zip(numbers, row or (), strict=True) if text is not None}
    if inferred_key(source) not in context.inferred.columns:
        for name, text in examples.items():
            context.observer.noted(
                f"{source.label()}: {name} is text, as {text!r} would change when read as a number; "
                "to have numbers, declare their types: schema=."
            )
    return StructType([StructField(f.name, StringType() if f.name in examples else f.dataType) for f in columns.fields])


def _changed_text(value: Column, kind: DataType, not_finite: Sequence[str]) -> Column:
    """A text that is not in the canonical form of its number (see `is_canonical`); null for any other text."""
    text = F.trim(value)
    if not isinstance(kind, DoubleType):
        unchanged = text.rlike(f"^{INTEGER}$")
    else:
        max_digits = F.when(text.rlike("[.eE]"), MAX_DIGITS_OF_DOUBLE).otherwise(MAX_DIGITS_OF_INTEGER)
        digits = F.length(F.regexp_replace(text, NOT_SIGNIFICANT, ""))
        short = (F.length(text) <= MAX_DIGITS_OF_INTEGER) | (digits <= max_digits)
        unchanged = (text.rlike(f"^({FRACTION})$") & short) | text.isin(*not_finite, "Infinity", "-Infinity")
    return F.when(~unchanged & (text != ""), value)
