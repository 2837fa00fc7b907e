"""Checks of the types of a table's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.errors import HeliosError, InputError, Origin
from helios.plan.typing.schema import types_that_spark_lacks

if TYPE_CHECKING:
    from pyiceberg.schema import Schema as IcebergSchema


def unsupported_types(name: str, schema: IcebergSchema, where: Origin, fix: str) -> list[HeliosError]:
    """The problem of a table with columns of types that Spark does not have: Spark refuses the whole table."""
    lacking = types_that_spark_lacks(schema)
    message = f"{name} has columns of types that Spark does not have: {', '.join(lacking)}."
    return [InputError(message, where=where, fix=f"{fix}.")] if lacking else []
