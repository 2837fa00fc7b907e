"""Which texts are inferred as numbers: those that a number reproduces exactly.

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
from helios.sources.common.spark.types import NUMBERS, nullable
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark.listing import loaded
from helios.sources.files.spark.text_lines import SPARKS_OWN
from helios.spark.jvm.sql import quoted

WHOLE = r"(0|-?[1-9]\d*)"

_DIGITS = r"(\.(\d*[1-9]|0))"
FRACTION = rf"-?((0|[1-9]\d*){_DIGITS}?|[1-9]{_DIGITS}?[eE][+-]\d{{1,3}}|[1-9]{_DIGITS}E([7-9]|[1-9]\d\d?))"
"""A double as C, Python, R or Java write it: with powers that have a sign, or as Java's from 7 on none."""

NO_DIGITS = r"^[-0.]+|[eE].*|\D|0+$"
"""The pattern of the parts of a number's text that are none of its significant digits."""

MOST_OF_WHOLE, MOST = 15, 17
"""The digits that a double keeps of any number, and those of the longest text that a program writes for a double."""

ENDLESS = {"nanValue": "NaN", "positiveInf": "Inf", "negativeInf": "-Inf"}
"""Options for what is no finite number, and Spark's defaults."""

ZEROS = r"^\s*[+-]?0\d"
"""How a number begins that has zeros before it."""


def comes_back(text: str, kind: DataType) -> bool:
    """True if a text is exactly the canonical form of its number in a type.

    Examples:
        >>> texts = ["1234", "01234", "-5", "+5", "1.1", "1.10", "1.0", "12E5", "1e-05", "9007199254740993"]
        >>> [text for text in texts if comes_back(text, DoubleType())]
        ['1234', '-5', '1.1', '1.0', '1e-05']
    """
    if not isinstance(kind, DoubleType):
        return re.fullmatch(WHOLE, text) is not None
    most = MOST if re.search("[.eE]", text) else MOST_OF_WHOLE
    return re.fullmatch(FRACTION, text) is not None and len(re.sub(NO_DIGITS, "", text)) <= most


def zeros_lost(text: Column, field: StructField) -> tuple[str, Column] | None:
    """The message for a text with leading zeros that its number would lose, and the condition; None for other types."""
    if not isinstance(field.dataType, NUMBERS):
        return None
    kind = field.dataType.simpleString()
    why = f"{field.name} would lose its zeros as {kind}, which was inferred: declare it as string, or as {kind}"
    return why, F.coalesce(text.rlike(ZEROS), F.lit(False))


def infer_csv(context: SourceContext, source: FilesSource, files: Sequence[File]) -> StructType:
    """The columns of csv files as Spark infers them from all their rows; one with a text that is no number is text.

    Args:
        context: What the sources of the run share.
        source: The source.
        files: The files.
    """
    options = {"inferSchema": "true", **source.reader_options(), **SPARKS_OWN}
    reader = context.spark.read.format("csv").options(**options).option("columnNameOfCorruptRecord", rejects.TEXT)
    schema = loaded(context.spark, reader, files).schema
    columns = nullable(StructType([field for field in schema.fields if field.name != rejects.TEXT]))
    assert isinstance(columns, StructType)
    given = source.reader_options()
    written = [f for f in columns.fields if isinstance(f.dataType, NUMBERS)]
    written = [f for f in written if not ("locale" in given and isinstance(f.dataType, DecimalType))]
    if not written:
        return columns
    texts = StructType([StructField(field.name, StringType()) for field in columns.fields])
    reader = context.spark.read.format("csv").options(**{**options, "inferSchema": "false"}).schema(texts)
    endless = [given.get(option, default) for option, default in ENDLESS.items()]
    lost = [F.min(_lost(F.col(quoted(f.name)), f.dataType, endless)) for f in written]
    row = loaded(context.spark, reader, files).agg(*lost).first()
    examples = {f.name: text for f, text in zip(written, row or (), strict=True) if text is not None}
    for name, text in examples.items() if source.path not in context.inferred.columns else ():
        context.observer.noted(
            f"{source.label()}: {name} is text, as {text!r} would change when read as a number; "
            "to have numbers, declare their types: schema=."
        )
    return StructType([StructField(f.name, StringType() if f.name in examples else f.dataType) for f in columns.fields])


def _lost(value: Column, kind: DataType, endless: Sequence[str]) -> Column:
    """A text that its number does not reproduce; null for any other, see `comes_back`."""
    text = F.trim(value)
    if not isinstance(kind, DoubleType):
        kept = text.rlike(f"^{WHOLE}$")
    else:
        most = F.when(text.rlike("[.eE]"), MOST).otherwise(MOST_OF_WHOLE)
        short = (F.length(text) <= MOST_OF_WHOLE) | (F.length(F.regexp_replace(text, NO_DIGITS, "")) <= most)
        kept = (text.rlike(f"^({FRACTION})$") & short) | text.isin(*endless, "Infinity", "-Infinity")
    return F.when(~kept & (text != ""), value)
