"""The sink of `Iceberg.mirror(...)`: the tables of a database, each with its own columns and key."""

from __future__ import annotations

import string
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NoReturn, Self, TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import one_of, text
from helios.model.modes import Mode, Upsert
from helios.model.sink import Evolution, IcebergSink
from helios.model.target import TargetKind
from helios.model.values import Identifier, caller

NAME_FIELDS = ("prefix", "db", "schema", "table")
"""The fields of `names=`: the prefix of Debezium's topics, and the database, schema and name of the source table."""

SchemaChange: TypeAlias = Literal["fail", "snapshot", "keep"]
SCHEMA_CHANGES = ("fail", "snapshot", "keep")

ANY_TABLE = "*"
"""The table name in a mirror's identifier: it stands for every table of the namespace."""


@dataclass(frozen=True, kw_only=True)
class MirrorSink(IcebergSink):
    """The tables of a namespace, one for each table of a database. Made by `Iceberg.mirror`.

    Attributes:
        names: The pattern of the target tables' names, with the fields `{table}`, `{schema}`, `{db}` and `{prefix}`.
        atomic: Whether one commit of the catalog changes all tables of a batch.
        schema_change: The policy for changes of columns or names that the database's log does not fully describe:
            "fail", "snapshot" or "keep".
    """

    mode: Mode = field(default_factory=Upsert)
    evolution: Evolution = field(default_factory=lambda: Evolution(mode="full"))
    names: str = "{table}"
    atomic: bool = False
    schema_change: str = "fail"

    @property
    def target_kind(self) -> TargetKind:
        return TargetKind.ATOMIC_MIRROR if self.atomic else TargetKind.MIRROR

    @property
    def mirror(self) -> MirrorSink:
        return self

    def label(self) -> str:
        return f"Iceberg.mirror({Identifier(self.table.parts[:-1])})"

    def on_schema_change(self, choice: SchemaChange) -> Self:
        """Sets the policy for changes of columns or names that the database's log does not fully describe.

        Such a change renames or drops a column, adds a column with a default, rounds values to a new type, or renames
        a table. The log has only the changed rows: it does not say how the other rows have changed.

        Args:
            choice: "fail" (the default) stops the run before anything of the batch is written. "keep" goes on and
                reports the change: unchanged rows keep their values, a dropped column is null in new and changed
                rows, and a renamed table starts again under its new name, and the table of the former name stays.
                "snapshot" goes on in the same way, and the table waits for a snapshot by Debezium with all rows of the
                table: each run names the waiting tables and the signal to send.

        Raises:
            DeclarationError: The choice is not one of the three.

        Examples:
            >>> from helios.iceberg import Iceberg
            >>> Iceberg.mirror("local.shop").on_schema_change("keep").schema_change
            'keep'
        """
        return replace(self, schema_change=one_of(choice, SCHEMA_CHANGES, "on_schema_change"))

    # calls that need one schema or one key for all tables: they are refused

    def append(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`, as all write modes here do: each table is upserted by its own key."""
        raise _own_key_error("append")

    def overwrite(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _own_key_error("overwrite")

    def overwrite_partitions(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _own_key_error("overwrite_partitions")

    def upsert(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`: a mirror always upserts, by the key of each table."""
        raise _own_key_error("upsert")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _own_key_error("delete")

    def merge_sql(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _own_key_error("merge_sql")

    def partition_by(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`: the tables have different columns.

        An existing empty table keeps its partitioning.
        """
        raise _single_table_error("partition_by", "create the table with its partitioning before the mirror begins")

    def sort_by(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _single_table_error("sort_by", "give the table its sort order with `ALTER TABLE ... WRITE ORDERED BY`")

    def renames(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _single_table_error("renames")

    def drops(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _single_table_error("drops")

    def branch(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _single_table_error("branch")

    def audit(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _single_table_error("audit")

    def publish(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`."""
        raise _single_table_error("publish")

    def route(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises `DeclarationError`: each change names its table."""
        raise DeclarationError(
            "Iceberg.mirror() takes no .route(): each change names its table.",
            where=caller(),
            fix='leave it out; names= sets the names of the tables: Iceberg.mirror(..., names="{schema}_{table}").',
        )


def _own_key_error(call: str) -> DeclarationError:
    return DeclarationError(
        f"Iceberg.mirror() takes no .{call}(): each table is upserted by the keys in its own records, in the order of "
        "the database's log.",
        where=caller(),
        fix="leave it out.",
    )


def _single_table_error(call: str, instead: str = "") -> DeclarationError:
    own_pipeline = (
        "give the table that needs it a pipeline of its own: "
        f'Cdc.debezium(...) >> Iceberg.sink("ns.t").upsert().{call}(...).'
    )
    return DeclarationError(
        f"Iceberg.mirror() takes no .{call}(): it writes many tables, each with its own columns.",
        where=caller(),
        fix=f"{instead}, or {own_pipeline}" if instead else own_pipeline,
    )


def checked_name_pattern(value: str) -> str:
    """Returns the pattern of the target tables' names unchanged, after a check.

    Raises:
        DeclarationError: The pattern has no `{table}`, or a field that is not in `NAME_FIELDS`.

    Examples:
        >>> checked_name_pattern("{schema}_{table}")
        '{schema}_{table}'
    """
    error = DeclarationError(
        f"Iceberg.mirror(names={value!r}): a pattern has {{table}}, may have {{schema}}, {{db}} and {{prefix}}, and "
        "has only letters, digits, '_' and '-' between them.",
        where=caller(),
        fix='write names="{schema}_{table}".',
    )
    try:
        parts = list(string.Formatter().parse(text(value, "names=")))
    except ValueError:
        raise error from None
    fields = {name for _, name, _, _ in parts if name is not None}
    unformatted = all(not (spec or conversion) for _, _, spec, conversion in parts)
    valid_literals = all(c.isalnum() or c in "_-" for literal, _, _, _ in parts for c in literal)
    if "table" not in fields or not fields <= set(NAME_FIELDS) or not unformatted or not valid_literals:
        raise error
    return value
