"""Helpers for Spark SQL: quoting of names and strings, the format of times in JSON, and errors of the analyzer."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from helios.errors import InputError, Origin

JSON_TIMES = {
    # Spark's default formats truncate times to milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options with which `to_json` keeps microseconds."""


def quoted(column: str) -> str:
    """A column name in backticks; the name may contain spaces and dots."""
    return f"`{column.replace('`', '``')}`"


def literal(value: str) -> str:
    """A string as a literal of Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def struct_of(ddl: str) -> StructType:
    """The columns that DDL such as "id bigint, name string" declares."""
    struct = StructType.fromDDL(ddl)
    assert isinstance(struct, StructType)
    return struct


def refusal(declaration: str, error: AnalysisException, where: Origin | None) -> InputError:
    """The error for a declaration that Spark's analyzer refuses, without Spark's query context and stack trace."""
    text = (error.getMessage() or str(error)).split("; line ")[0].splitlines()[0]
    return InputError(f"{declaration}: {text}", where=where)
