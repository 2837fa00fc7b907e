"""The parquet types that Iceberg's readers in Spark read correctly as each type of a table.

The readers follow the table's types: they ignore the types of a file, or fail with a Java error. One reader reads
batches of flat columns, with separate code for dictionaries; another reads rows. The rules are those of Iceberg 1.12;
tests/streaming/test_foreign_files.py reads such files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from helios.native.program import Misread

if TYPE_CHECKING:
    import pyarrow.parquet as pq

BATCHES, DICTIONARIES, ROWS = "batches", "dictionaries", "rows"
ALL = frozenset({BATCHES, DICTIONARIES, ROWS})
"""The readers: of batches, of dictionaries in batches, of rows."""

_READ: tuple[tuple[str, str, str, Set[str]], ...] = (
    ("boolean", "BOOLEAN", "", ALL),
    ("int|long", "INT32", r"|INTEGER\((8|16|32),true\)", ALL),
    ("int|long", "INT32", r"INTEGER\((8|16),false\)", {BATCHES}),
    ("long", "INT64", r"|INTEGER\(64,true\)", ALL),
    ("float|double", "FLOAT", "", ALL),
    ("double", "DOUBLE", "", ALL),
    ("date", "INT32", "|DATE", ALL),
    ("timestamp|timestamptz", "INT64", r"TIMESTAMP\(MICROS,(true|false)\)", ALL),
    # The reader of batches takes milliseconds of a dictionary for microseconds.
    ("timestamp|timestamptz", "INT64", r"TIMESTAMP\(MILLIS,(true|false)\)", {BATCHES, ROWS}),
    ("timestamp|timestamptz", "INT96", "", ALL),
    ("string", "BINARY", "STRING|ENUM|JSON", ALL),
    ("string", "BINARY", "", {BATCHES}),
    ("binary", "BINARY", "|BSON", ALL),
    ("binary", "BINARY", "STRING|ENUM|JSON", {BATCHES}),
    ("uuid", "FIXED_LEN_BYTE_ARRAY", "|UUID", ALL),
    (r"fixed\[\d+\]", "FIXED_LEN_BYTE_ARRAY", "", ALL),
)
"""The types of a table's column, the physical type of a file's column, its annotations, and the correct readers."""

NOTHING = "UNKNOWN"
"""The annotation of a column that has only nulls."""
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)", re.IGNORECASE)
_KNOWN = re.compile("|".join(kind for kind, *_ in _READ))


def readers(kind: str, physical: str, annotation: str) -> Set[str]:
    """The readers that read a column of a file correctly.

    Args:
        kind: The type of the table's column, as Iceberg writes it.
        physical: The physical type of the file's column.
        annotation: Its logical type as parquet writes it; empty for none.

    Examples:
        >>> sorted(readers("int", "INT32", "INTEGER(8,false)"))
        ['batches']
        >>> readers("timestamp", "INT64", "TIMESTAMP(NANOS,false)")
        frozenset()
    """
    table, file = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(annotation)
    if table is not None:
        if file is None or table[2] != file[2] or int(file[1]) > int(table[1]):
            return frozenset()
        # The reader of batches fails on decimals in BINARY, unless they are in a dictionary.
        return ALL if physical != "BINARY" else frozenset({DICTIONARIES, ROWS})
    if not _KNOWN.fullmatch(kind):
        return ALL
    if annotation == NOTHING:
        return frozenset({ROWS})
    matching = (
        read
        for kinds, stored, annotations, read in _READ
        if re.fullmatch(kinds, kind) and physical == stored and re.fullmatch(annotations, annotation)
    )
    return frozenset().union(*matching)


_ICEBERG = {
    "boolean": "boolean", "int": "int", "bigint": "long", "float": "float", "double": "double", "date": "date",
    "timestamp": "timestamptz", "timestamp_ntz": "timestamp",
}  # fmt: skip
"""The Iceberg type of each Spark type that stands for only one."""
_UNITS = {"milliseconds": "MILLIS", "microseconds": "MICROS", "nanoseconds": "NANOS"}


def refuse_misread(parquet: pq.ParquetFile, stored: str, name: str, kind: str, path: str) -> None:
    """Refuses a flat column of a file that the engine, like Spark's vectorized reader, would misread.

    Args:
        parquet: The file.
        stored: The column's name in the file.
        name: Its name in the table.
        kind: Its Spark type in the table.
        path: The path of the file.

    Raises:
        Misread: The file's type is not read correctly as the table's type.
    """
    table = kind if kind.startswith("decimal") else _ICEBERG.get(kind)
    index = next((i for i in range(len(parquet.schema)) if parquet.schema.column(i).path == stored), None)
    if index is None or table is None:
        return
    physical, note = parquet.schema.column(index).physical_type, annotation(parquet.schema.column(index))
    groups = (parquet.metadata.row_group(i).column(index) for i in range(parquet.num_row_groups))
    needed = {BATCHES, DICTIONARIES} if any(group.has_dictionary_page for group in groups) else {BATCHES}
    if not needed <= readers(table, physical, note):
        raise Misread(
            f"the file {path} has the column {name} as {f'{physical} {note}'.rstrip()}, which Iceberg does not read as "
            f"the table's {table}"
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
    return {"None": "", "Null": NOTHING}.get(name, str(name).upper())
