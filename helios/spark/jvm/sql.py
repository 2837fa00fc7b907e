"""Spark SQL text: quoted column names and texts, times in JSON, and Spark's refusal of declared SQL."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from helios.errors import InputError, Origin

JSON_TIMES = {
    # Spark's default truncates to milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options with which `to_json` keeps microseconds."""


def quoted(column: str) -> str:
    """A column name in backticks, so that it may contain spaces and dots."""
    return f"`{column.replace('`', '``')}`"


def literal(value: str) -> str:
    """A text as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def struct_of(ddl: str) -> StructType:
    """The columns that DDL declares.

    Args:
        ddl: Names and types, such as "id bigint, name string".
    """
    struct = StructType.fromDDL(ddl)
    assert isinstance(struct, StructType)
    return struct


def refusal(what: str, error: AnalysisException, where: Origin | None) -> InputError:
    """Spark's refusal of something declared, without its query context and stack.

    Args:
        what: What was declared, as the beginning of the message.
        error: Spark's error.
        where: The line that declared it.
    """
    text = (error.getMessage() or str(error)).split("; line ")[0].splitlines()[0]
    return InputError(f"{what}: {text}", where=where)
