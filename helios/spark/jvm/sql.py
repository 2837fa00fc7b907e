"""Spark SQL text: quoted column names, and Spark's refusal of declared SQL."""

from __future__ import annotations

from pyspark.errors import AnalysisException

from helios.errors import InputError, Origin


def quoted(column: str) -> str:
    """A column name that may hold spaces or dots, as Spark parses it."""
    return f"`{column.replace('`', '``')}`"


def refusal(what: str, error: AnalysisException, where: Origin | None) -> InputError:
    """Spark's refusal of something declared, without its query context and stack.

    Args:
        what: What was declared, as the beginning of the message.
        error: Spark's error.
        where: The line that declared it.
    """
    text = (error.getMessage() or str(error)).split("; line ")[0].splitlines()[0]
    return InputError(f"{what}: {text}", where=where)
