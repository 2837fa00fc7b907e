"""Debezium's records of several tables, separated by table: each table has its own columns and key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from helios.model.flow import Source
from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.spark import rows as debezium_rows
from helios.sources.changes.spark.rows import EVENT, KEY, OPERATIONS, ORIGIN, WHY_NO_CHANGE
from helios.sources.changes.spark.versions import TableVersions, versions_of
from helios.sources.common.spark.run_state import RejectedInput

RECORDS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns of records, as Spark reads them."""

TABLE = "__helios_table"
"""The hidden column with a record's table, a struct of the fields `ORIGIN`; null if the record is bad or names none."""

NO_SCHEMA = "the record has no schema part, from which its columns come: set Debezium's schemas.enable to true"


@dataclass(frozen=True)
class SourceTable:
    """A table of a database, as Debezium's records name the table.

    Attributes:
        prefix: The prefix of Debezium's topics, which identifies the server.
        schema: The schema; empty if the database has no schemas.

    Examples:
        >>> str(SourceTable("shop", "postgres", "public", "orders"))
        'postgres.public.orders of shop'
    """

    prefix: str
    db: str
    schema: str
    table: str

    def __str__(self) -> str:
        return f"{'.'.join(part for part in (self.db, self.schema, self.table) if part)} of {self.prefix}"


class ChangesByTable:
    """The records of a batch, by the tables that they change.

    Args:
        records: The records, as Spark reads them.
        rejected: Collects the bad records.

    Attributes:
        tables: The versions and keys of each table in the records. None stands for records without `TABLE`.
    """

    def __init__(self, records: DataFrame, source: Source, rejected: RejectedInput) -> None:
        assert isinstance(source, CdcSource)
        self._source = source
        self._rejected = rejected
        self._changes = _with_table(debezium_rows.events(records)).persist()
        grouped: dict[SourceTable | None, list[Row]] = {}
        for row in debezium_rows.schema_rows(self._changes, TABLE):
            table = SourceTable(*row[TABLE]) if row[TABLE] is not None else None
            grouped.setdefault(table, []).append(row)
        self.tables = {table: versions_of(rows) for table, rows in grouped.items()}

    @property
    def fails_on_bad_records(self) -> bool:
        """True if a bad record stops the run."""
        return self._source.kafka.bad_row == "fail"

    def columns(self, table: SourceTable) -> StructType:
        """The columns of a table.

        Raises:
            InputError: A column has had several types, and no type holds the values of all; or two columns of a version
                differ only by case.
        """
        return debezium_rows.columns(self.tables[table].versions, self._source)

    def rows(self, table: SourceTable, keys: Sequence[str]) -> DataFrame:
        """The rows of a table's changes, with the hidden columns of their order and deletes."""
        return self._rows(self._changes_of(table), self.tables[table], keys)

    def keys(self, table: SourceTable, keys: Sequence[str], *operations: str) -> DataFrame:
        """The keys, as columns of text, of those changes of a table that have one of the operations."""
        texts = [F.get_json_object(F.col(KEY), f"$['{key}']").alias(key) for key in keys]
        return self._changes_of(table).where(F.col(EVENT)["op"].isin(*operations)).select(*texts)

    def refuse(self, table: SourceTable | None, keys: Sequence[str] = (), why: str | None = None) -> None:
        """Treats all records of a table as bad.

        Args:
            table: The table; None for records without `TABLE`.
            keys: The key columns of the table.
            why: The reason for records that have no reason of their own; None if all have one, such as a missing table,
                schema part or key.

        Raises:
            Py4JJavaError: A bad record stops the run.
        """
        changes = self._changes_of(table)
        if why is not None:
            changes = changes.withColumn(WHY_NO_CHANGE, F.coalesce(WHY_NO_CHANGE, F.lit(why)))
        # All of these rows are bad, so none is written. But they must be read: reading a bad record stops the run, or
        # counts the record as dropped.
        self._rows(changes, TableVersions(), keys).write.format("noop").mode("overwrite").save()

    def unpersist(self) -> None:
        """Frees the memory of the records."""
        self._changes.unpersist()

    def _changes_of(self, table: SourceTable | None) -> DataFrame:
        """The records of a table; if `table` is None, those without `TABLE`."""
        named_table = F.col(TABLE)
        if table is None:
            return self._changes.where(named_table.isNull())
        parts = (table.prefix, table.db, table.schema, table.table)
        same = F.lit(True)
        for name, part in zip(ORIGIN, parts, strict=True):
            same = same & (named_table[name] == part)
        return self._changes.where(named_table.isNotNull() & same)

    def _rows(self, changes: DataFrame, versions: TableVersions, keys: Sequence[str]) -> DataFrame:
        return debezium_rows.rows(
            changes.drop(TABLE),
            self._source,
            versions,
            keys=keys,
            known=StructType([]),
            rejected=self._rejected,
            no_schema=NO_SCHEMA,
        )


def _with_table(changes: DataFrame) -> DataFrame:
    """Adds the column `TABLE`. A change of a row is bad if it names no table."""
    event = F.col(EVENT)
    source = event["source"]
    names_table = F.coalesce(source["table"], F.lit("")) != ""
    table = F.struct(*[F.coalesce(source[name], F.lit("")).alias(name) for name in ORIGIN])
    changes_row = F.coalesce(event["op"].isin(*OPERATIONS), F.lit(False))
    why = F.when(changes_row & ~names_table, F.lit("its source names no table"))
    return changes.withColumns(
        {
            TABLE: F.when(F.col(WHY_NO_CHANGE).isNull() & names_table, table),
            WHY_NO_CHANGE: F.coalesce(F.col(WHY_NO_CHANGE), why),
        }
    )
