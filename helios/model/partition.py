"""Partition transforms, named as in the Iceberg specification (partition transforms, section "Partitioning")."""

from __future__ import annotations

import re
from dataclasses import dataclass

from helios.errors import DeclarationError
from helios.model.values import caller


@dataclass(frozen=True)
class PartitionField:
    """One field of a partition spec: a transform of a column.

    Examples:
        >>> str(bucket(16, "customer_id"))
        'bucket(16, customer_id)'
    """

    transform: str
    column: str
    width: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column.strip():
            raise DeclarationError(
                f"{self.transform}({self.column!r}) needs the name of a column.",
                where=caller(),
                fix=f'write {self.transform}({"" if self.width is None else f"{self.width}, "}"column").',
            )

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        inner = f"{self.width}, {self.column}" if self.width is not None else self.column
        return f"{self.transform}({inner})"

    @property
    def name(self) -> str:
        """The field's name in the spec, as Iceberg's own builder would set it."""
        suffix = {"identity": "", "truncate": "_trunc"}.get(self.transform, f"_{self.transform}")
        return f"{self.column}{suffix}"


def identity(column: str) -> PartitionField:
    """The value itself: `identity("country")`."""
    return PartitionField("identity", column)


def year(column: str) -> PartitionField:
    """Years since 1970 of a date or timestamp: `year("ts")`."""
    return PartitionField("year", column)


def month(column: str) -> PartitionField:
    """Months since 1970-01 of a date or timestamp: `month("ts")`."""
    return PartitionField("month", column)


def day(column: str) -> PartitionField:
    """Days since 1970-01-01 of a date or timestamp: `day("ts")`."""
    return PartitionField("day", column)


def hour(column: str) -> PartitionField:
    """Hours since 1970-01-01T00 of a timestamp: `hour("ts")`."""
    return PartitionField("hour", column)


def bucket(buckets: int, column: str) -> PartitionField:
    """The murmur3 hash modulo `buckets`: `bucket(16, "id")`.

    Raises:
        DeclarationError: `buckets` is not a positive number.
    """
    return _sized("bucket", buckets, column)


def truncate(width: int, column: str) -> PartitionField:
    """Text cut to `width` characters, or numbers floored to a multiple: `truncate(4, "sku")`.

    Raises:
        DeclarationError: `width` is not a positive number.
    """
    return _sized("truncate", width, column)


def by_name(column: str) -> PartitionField:
    """Returns the identity transform of a column.

    Raises:
        DeclarationError: The text is not a column name, but a transform such as `"day(ts)"`.
    """
    name, width = r"[`\"']?(\w+)[`\"']?", r"(\d+)"
    call = re.fullmatch(rf"({'|'.join(TRANSFORMS)})s?\(({width},)?{name}(,{width})?\)", "".join(column.split()))
    if call is None:
        return identity(column)
    transform, _, first_width, column_name, _, last_width = call.groups()  # the width may come first or last
    size = f"{first_width or last_width}, " if first_width or last_width else ""
    raise DeclarationError(
        f"partition_by takes a transform as a call, and {column!r} is text: it would be a column of that name.",
        where=caller(),
        fix=f'write partition_by({transform}({size}"{column_name}")), and import {transform} from helios.',
    )


def _sized(transform: str, size: int, column: str) -> PartitionField:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MAX_WIDTH:
        raise DeclarationError(
            f"{transform}({size!r}, {column!r}) needs a number from 1 to {MAX_WIDTH:,}, then a column.",
            where=caller(),
            fix=f'write {transform}(16, "column").',
        )
    return PartitionField(transform, column, size)


MAX_WIDTH = 2**31 - 1
"""The largest width: Iceberg stores the number of buckets, and the width of a truncation, as an int."""

TRANSFORMS = {f.__name__: f for f in (identity, year, month, day, hour, bucket, truncate)}
