"""Which parquet types Iceberg's readers in Spark read right as which types of a table.

They believe the table: what a file says of its own types they ignore, or fail at with an error of Java. There are two
of them, one for batches of flat columns and one for rows; the rules are those of Iceberg 1.12.
"""

from __future__ import annotations

import json
import re
from typing import Any

from helios.native.program import Misread

BATCHES, ROWS, BOTH = {"batches"}, {"rows"}, {"batches", "rows"}

_READ: tuple[tuple[str, str, str, set[str]], ...] = (
    ("boolean", "BOOLEAN", "", BOTH),
    ("int|long", "INT32", r"|INTEGER\((8|16|32),true\)", BOTH),
    ("int", "INT32", "DATE", ROWS),
    ("long", "INT64", r"|INTEGER\(64,true\)", BOTH),
    ("long", "INT64", r"TIMESTAMP\(.*|TIME\(NANOS,.*", ROWS),
    ("float|double", "FLOAT", "", BOTH),
    ("double", "DOUBLE", "", BOTH),
    ("date", "INT32", "|DATE", BOTH),
    ("timestamp|timestamptz", "INT64", r"TIMESTAMP\(MICROS,(true|false)\)", BOTH),
    # The reader of batches has another way for dictionaries, which is not known to multiply milliseconds.
    ("timestamp|timestamptz", "INT64", r"TIMESTAMP\(MILLIS,(true|false)\)", ROWS),
    ("timestamp|timestamptz", "INT64", "", ROWS),
    ("timestamp|timestamptz", "INT96", "", BOTH),
    ("string", "BINARY", "STRING|ENUM|JSON", BOTH),
    ("string", "BINARY", "", BATCHES),
    ("binary", "BINARY", "|BSON", BOTH),
    ("binary", "BINARY", "STRING|ENUM|JSON", BATCHES),
    ("binary", "FIXED_LEN_BYTE_ARRAY", "|UUID|FLOAT16", ROWS),
    ("uuid", "FIXED_LEN_BYTE_ARRAY", "|UUID", BOTH),
    (r"fixed\[\d+\]", "FIXED_LEN_BYTE_ARRAY", "", BOTH),
)
"""Types of a table, a physical type, its annotations, and the readers that read it."""

_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.IGNORECASE)
_KNOWN = re.compile("|".join(kind for kind, *_ in _READ))


def is_read(kind: str, physical: str, annotation: str, *, flat: bool) -> bool:
    """Whether Iceberg reads a column of a file right.

    Args:
        kind: The type of the table's column, as Iceberg writes it.
        physical: The physical type of the file's column.
        annotation: Its logical type as parquet writes it; empty for none.
        flat: Whether the table has flat columns alone, which are read in batches.

    Examples:
        >>> is_read("timestamp", "INT64", "TIMESTAMP(MICROS,false)", flat=True)
        True
        >>> is_read("timestamp", "INT64", "TIMESTAMP(NANOS,false)", flat=True)
        False
        >>> is_read("decimal(9, 2)", "INT32", "DECIMAL(9,3)", flat=True)
        False
    """
    table, file = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(annotation)
    if table is not None:
        same = file is not None and table[2] == file[2] and int(file[1]) <= int(table[1])
        # The reader of batches fails at decimals of any length.
        return same and (physical != "BINARY" or not flat)
    if not _KNOWN.fullmatch(kind):
        return True
    annotation = "" if annotation == "UNKNOWN" else annotation  # nothing but nulls
    reader = "batches" if flat else "rows"
    return any(
        reader in readers
        and re.fullmatch(kinds, kind) is not None
        and physical == stored
        and re.fullmatch(annotations, annotation) is not None
        for kinds, stored, annotations, readers in _READ
    )


_ICEBERG = {
    "boolean": "boolean", "int": "int", "bigint": "long", "float": "float", "double": "double", "date": "date",
    "timestamp": "timestamptz", "timestamp_ntz": "timestamp",
}  # fmt: skip
"""Types of Spark that stand for one type of Iceberg."""
_UNITS = {"milliseconds": "MILLIS", "microseconds": "MICROS", "nanoseconds": "NANOS"}


def refuse_misread(column: Any, name: str, kind: str, path: str) -> None:
    """Refuses a column of a file that is read right in no way.

    Args:
        column: The column in pyarrow's schema of the file; None where the file has it nested.
        name: What the table calls it.
        kind: The Spark type that it has in the table.
        path: The file.

    Raises:
        Misread: It has such a type.
    """
    table = kind if kind.startswith("decimal") else _ICEBERG.get(kind)
    if column is None or table is None:
        return
    note = annotation(column)
    if not any(is_read(table, column.physical_type, note, flat=flat) for flat in (True, False)):
        raise Misread(
            f"the file {path} has the column {name} as {f'{column.physical_type} {note}'.rstrip()}, which Iceberg does "
            f"not read as the table's {table}"
        )


def annotation(column: Any) -> str:
    """The logical type of a parquet column, as parquet writes it; empty for none."""
    logical = json.loads(column.logical_type.to_json())
    what = logical["Type"]
    if what == "Decimal":
        return f"DECIMAL({logical['precision']},{logical['scale']})"
    if what in ("Timestamp", "Time"):
        unit = _UNITS.get(logical["timeUnit"], logical["timeUnit"])
        return f"{what.upper()}({unit},{str(logical['isAdjustedToUTC']).lower()})"
    if what == "Int":
        return f"INTEGER({logical['bitWidth']},{str(logical['isSigned']).lower()})"
    return "" if what in ("None", "Null") else str(what).upper()
