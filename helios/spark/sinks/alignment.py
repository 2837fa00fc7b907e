"""Schema alignment: evolves a table's columns for a batch, then casts the batch to the table's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.catalog.names import TableName
from helios.errors import CheckFailed, HeliosError
from helios.plan.checks.sinks import existing_key_problems, sort_terms
from helios.plan.evolution import evolve
from helios.plan.evolution.changes import Add
from helios.plan.evolution.fields import Path, renamed_columns
from helios.plan.nodes import Plan
from helios.plan.typing.schema import Column, Schema
from helios.spark.iceberg import schema as evolving
from helios.spark.iceberg.tables import load_table, spark_schema
from helios.spark.jvm.types.iceberg import JavaTable


def columns_of(schema: StructType) -> Schema:
    """The columns of a DataFrame, as the compiler sees them."""
    return Schema(tuple(Column(f.name, f.dataType.simpleString(), f.nullable) for f in schema.fields))


class SchemaAligner:
    """Aligns the batches of one table with the table's columns.

    Args:
        note: Tells the user that a column is added again; None to tell nothing.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        name: TableName,
        table: JavaTable,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._spark = spark
        self._reads = plan.reads
        self._sink = plan.write.iceberg
        self._name = name
        self._table = table
        self._note = note
        self._known: tuple[str, int] | None = None  # the columns and the schema id after the last evolution

    def check(self, schema: StructType) -> Sequence[evolve.Change]:
        """Finds the schema changes that the table needs for these columns, without applying them.

        Raises:
            CheckFailed: The columns do not fit; the message names the difference. Or the table has lost a key column
                since the run began: a column added in its place would match no row.
        """
        declared = self._sink.evolution
        policy = evolve.Policy(mode=declared.mode, renames=declared.renames, drops=declared.drops)
        target = evolving.target_of(self._table, self._name.text, [term.by for term in sort_terms(self._sink)])
        fields = evolving.fields_of(schema)
        evolution = evolve.evolve(fields, target, policy, self._sink.origin)
        if any(isinstance(change, Add) for change in evolution.changes):
            # The sources are loaded again, because their columns may have been renamed since the pipeline was compiled.
            policy = replace(policy, source_renames=self._renamed_in_sources())
            evolution = evolve.evolve(fields, target, policy, self._sink.origin)
        keys = {key.lower() for key in self._sink.mode.keys} if self._sink.mode.traits.keyed else set()
        problems: list[HeliosError] = list(evolution.problems)
        if any(isinstance(change, Add) and change.path[0].lower() in keys for change in evolution.changes):
            present = columns_of(spark_schema(self._spark, self._table))
            problems += existing_key_problems(self._sink, columns_of(schema), present)
        if problems:
            raise CheckFailed(problems)
        return evolution.changes

    def _renamed_in_sources(self) -> tuple[tuple[str, str], ...]:
        """The former and the present name of each column that was renamed in a source table."""
        loaded = [load_table(self._spark, read.table) for read in self._reads if read.table is not None]
        pairs: list[tuple[str, str]] = []
        for table in (table for table in loaded if table is not None):
            schemas = map(evolving.names_by_id, table.schemas().values())
            pairs += renamed_columns(schemas, evolving.names_by_id(table.schema()))
        return tuple(pairs)

    def __call__(self, df: DataFrame, helpers: tuple[str, ...]) -> DataFrame:
        """Evolves the table, then aligns the rows with it: columns by name, missing ones with nulls, types widened.

        Args:
            df: The rows, with the columns to store and the helper columns.
            helpers: The helper columns, which are not stored. They stay in the rows, after the other columns.

        Raises:
            CheckFailed: The rows do not fit; the table is unchanged.
        """
        stored = self.evolved(df.drop(*helpers).schema)
        extra = [field for field in df.schema.fields if field.name in helpers]
        return evolving.align(df, StructType([*stored.fields, *extra]))

    def evolved(self, schema: StructType) -> StructType:
        """Evolves the table for rows of these columns; returns the table's schema.

        Raises:
            CheckFailed: The rows do not fit; the table is unchanged.
        """
        if self._known != (schema.json(), int(self._table.schema().schemaId())):
            retry = self._sink.retry_policy
            for change in evolving.apply_changes(self._spark, self._table, lambda: self.check(schema), retry):
                if isinstance(change, Add) and self._note is not None:
                    self._tell_of_former_column(change.path, self._note)
            self._known = (schema.json(), int(self._table.schema().schemaId()))
        return spark_schema(self._spark, self._table)

    def _tell_of_former_column(self, path: Path, note: Callable[[str], None]) -> None:
        """Tells that the table had a column with the name of an added one: somebody has renamed or dropped it."""
        added, schemas = ".".join(path), [evolving.names_by_id(schema) for schema in self._table.schemas().values()]
        current = evolving.names_by_id(self._table.schema())
        if len({id for schema in schemas for id, name in schema.items() if name == added}) < 2:
            return
        now = dict(renamed_columns(schemas, current)).get(added)
        what = f"renamed to {now}, which gets no more values" if now is not None else "dropped"
        note(f"{self._name.text} gets a new column {added}: its former column {added} was {what}")
