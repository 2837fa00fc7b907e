"""For each type of a table's column, the parquet types that Iceberg's readers in Spark read correctly.

Iceberg's readers go by the table's types: they ignore other types in a file, or fail with a Java error. One reader
reads batches of flat columns, with separate code for dictionaries. Another reader reads single rows. The rules are for
Iceberg 1.12; tests/streaming/test_foreign_files.py reads such files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from helios.native.program import Misread

if TYPE_CHECKING:
    import pyarrow.parquet as pq

BATCH_READER, DICTIONARY_READER, ROW_READER = "batches", "dictionaries", "rows"
ALL = frozenset({BATCH_READER, DICTIONARY_READER, ROW_READER})
"""The readers: of batches of plain values, of batches with dictionaries, and of single rows."""

_READABLE: tuple[tuple[str, str, str, Set[str]], ...] = (
    ("boolean", "BOOLEAN", "", ALL),
    ("int|long", "INT32", r"|INTEGER\((8|16|32),true\)", ALL),
    ("int|long", "INT32", r"INTEGER\((8|16),false\)", {BATCH_READER}),
    ("long", "INT64", r"|INTEGER\(64,true\)", ALL),
    ("float|double", "FLOAT", "", ALL),
    ("double", "DOUBLE", "", ALL),
    ("date", "INT32", "|DATE", ALL),
    ("timestamp|timestamptz", "INT64", r"TIMESTAMP\(MICROS,(true|false)\)", ALL),
    # The reader of batches mistakes milliseconds in a dictionary for microseconds.
    ("timestamp|timestamptz", "INT64", r"TIMESTAMP\(MILLIS,(true|false)\)", {BATCH_READER, ROW_READER}),
    ("timestamp|timestamptz", "INT96", "", ALL),
    ("string", "BINARY", "STRING|ENUM|JSON", ALL),
    ("string", "BINARY", "", {BATCH_READER}),
    ("binary", "BINARY", "|BSON", ALL),
    ("binary", "BINARY", "STRING|ENUM|JSON", {BATCH_READER}),
    ("uuid", "FIXED_LEN_BYTE_ARRAY", "|UUID", ALL),
    (r"fixed\[\d+\]", "FIXED_LEN_BYTE_ARRAY", "", ALL),
)
"""Rules: a pattern of the table's type, the file's physical type, a pattern of the file's annotation (logical type),
and the readers that read such a column correctly."""

ONLY_NULLS = "UNKNOWN"
"""The annotation of a column that has only nulls."""
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.IGNORECASE)
_KNOWN = re.compile("|".join(kind for kind, *_ in _READABLE))


def readers(kind: str, physical: str, annotation: str) -> Set[str]:
    """The readers that read a column of a file correctly.

    Args:
        kind: The type of the table's column, as Iceberg writes it.
        physical: The physical type of the file's column.
        annotation: The logical type of the file's column, as parquet writes it; empty for none.

    Examples:
        >>> sorted(readers("int", "INT32", "INTEGER(8,false)"))
        ['batches']
        >>> readers("timestamp", "INT64", "TIMESTAMP(NANOS,false)")
        frozenset()
    """
    table_decimal, file_decimal = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(annotation)
    if table_decimal is not None:
        if file_decimal is None or table_decimal[2] != file_decimal[2] or int(file_decimal[1]) > int(table_decimal[1]):
            return frozenset()
        # The reader of batches fails on decimals in BINARY, unless they are in a dictionary.
        return ALL if physical != "BINARY" else frozenset({DICTIONARY_READER, ROW_READER})
    if not _KNOWN.fullmatch(kind):
        return ALL
    if annotation == ONLY_NULLS:
        return frozenset({ROW_READER})
    matching = (
        read
        for kinds, stored, annotations, read in _READABLE
        if re.fullmatch(kinds, kind) and physical == stored and re.fullmatch(annotations, annotation)
    )
    return frozenset().union(*matching)


_ICEBERG = {
    "boolean": "boolean", "int": "int", "bigint": "long", "float": "float", "double": "double", "date": "date",
    "timestamp": "timestamptz", "timestamp_ntz": "timestamp",
}  # fmt: skip
"""The Iceberg type of each Spark type, where there is exactly one."""
_UNITS = {"milliseconds": "MILLIS", "microseconds": "MICROS", "nanoseconds": "NANOS"}


def refuse_misread(parquet: pq.ParquetFile, stored: str, name: str, kind: str, path: str) -> None:
    """Refuses a flat column that the engine and Spark's vectorized reader would both misread.

    Args:
        stored: The column's name in the file.
        name: The column's name in the table.
        kind: The column's Spark type in the table.
    """
    table_type = kind if kind.startswith("decimal") else _ICEBERG.get(kind)
    index = next((i for i in range(len(parquet.schema)) if parquet.schema.column(i).path == stored), None)
    if index is None or table_type is None:
        return
    physical, stored_note = parquet.schema.column(index).physical_type, annotation(parquet.schema.column(index))
    groups = (parquet.metadata.row_group(i).column(index) for i in range(parquet.num_row_groups))
    needed = {BATCH_READER, DICTIONARY_READER} if any(group.has_dictionary_page for group in groups) else {BATCH_READER}
    if not needed <= readers(table_type, physical, stored_note):
        raise Misread(
            f"the file {path} has the column {name} as {f'{physical} {stored_note}'.rstrip()}, which Iceberg does "
            f"not read as the table's {table_type}"
        )


def annotation(column: Any) -> str:
    """The logical type of a parquet column, as parquet writes it; empty for none."""
    logical = json.loads(column.logical_type.to_json())
    name = logical["Type"]
    if name == "Decimal":
        return f"DECIMAL({logical['precision']},{logical['scale']})"
    if name in ("Timestamp", "Time"):
        unit = _UNITS.get(logical["timeUnit"], logical["timeUnit"])
        return f"{name.upper()}({unit},{str(logical['isAdjustedToUTC']).lower()})"
    if name == "Int":
        return f"INTEGER({logical['bitWidth']},{str(logical['isSigned']).lower()})"
    return {"None": "", "Null": ONLY_NULLS}.get(name, str(name).upper())
