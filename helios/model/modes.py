"""The write modes of an Iceberg sink, which determine how a batch changes its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from helios.model.values import show_seconds

VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""The columns that `upsert(history=True)` adds."""


class ModeTraits(NamedTuple):
    """The properties of a write mode; `MODES` has those of every mode.

    Attributes:
        rewrites_same_inputs: Whether a batch pipeline that is run again writes identical inputs again.
        stores_columns: Whether the table stores the stream's columns.
        replaces_foreign_rows: Whether the mode replaces rows of other writers. Its commit fails if another writer
            commits meanwhile.
        idempotent: Whether writing the same rows again changes nothing.
        keyed: Whether every row needs a key that is not null.
        empties_routed_tables: Whether a batch without rows for a routed table empties that table.
        needs_partitions: Whether the target must be partitioned.
        routable: Whether `.route` can name the table.
        columnar: Whether the columnar engine supports this mode.
        only_adds: Whether a batch only adds rows, whatever the target contains.
        table_format: The format version of a table that the mode creates.
    """

    rewrites_same_inputs: bool = True
    stores_columns: bool = True
    replaces_foreign_rows: bool = False
    idempotent: bool = False
    keyed: bool = False
    empties_routed_tables: bool = False
    needs_partitions: bool = False
    routable: bool = True
    columnar: bool = False
    table_format: int = 2
    only_adds: bool = False


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A write mode, with the arguments of the call that declares it.

    Attributes:
        call: The method of the sink that declares the mode.
    """

    call: ClassVar[str] = ""

    @property
    def traits(self) -> ModeTraits:
        return MODES[type(self)]

    @property
    def upsert(self) -> Upsert | None:
        """The mode itself if it is an upsert; None for all other modes."""
        return None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; empty if the mode has no keys."""
        return ()

    @property
    def order_by(self) -> str | None:
        """SQL expression whose largest value marks the newest row; None if no order is declared."""
        return None

    @property
    def condition(self) -> str | None:
        """SQL condition of the replaced rows, which all rows of a batch must meet, too; None without a condition."""
        return None

    @property
    def merge(self) -> str | None:
        """The user's own MERGE; None for modes that Helios writes itself."""
        return None

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The columns that the table has in addition to those of the stream."""
        return ()

    @property
    def sql_texts(self) -> tuple[str, ...]:
        """The SQL of the mode, which Spark evaluates when it writes."""
        return tuple(text for text in (self.condition, self.order_by, self.merge) if text)

    @property
    def replaces_table(self) -> bool:
        """True if every batch replaces the whole table."""
        return self.traits.empties_routed_tables and self.condition is None

    def text(self) -> str:
        """The mode as the plan shows it."""
        raise NotImplementedError


class Append(Mode):
    """Adds the rows."""

    call: ClassVar[str] = "append"

    def text(self) -> str:
        return "append"


@dataclass(frozen=True, kw_only=True)
class Overwrite(Mode):
    """Replaces the rows that a filter selects; without a filter, all rows."""

    call: ClassVar[str] = "overwrite"

    filter: str | None = None

    @property
    def condition(self) -> str | None:
        return self.filter

    def text(self) -> str:
        return f"overwrite where {self.filter}" if self.filter else "overwrite"


class OverwritePartitions(Mode):
    """Replaces the partitions that the batch touches."""

    call: ClassVar[str] = "overwrite_partitions"

    def text(self) -> str:
        return "overwrite the touched partitions"


@dataclass(frozen=True, kw_only=True)
class Upsert(Mode):
    """Keeps the newest row of each key, or all versions of it.

    Attributes:
        keys: The key columns; empty if the records carry their own key.
        order_by: SQL expression whose largest value marks the newest row; without it, rows of a later batch win.
        delete_when: SQL condition of rows that delete their key.
        tombstones: How many seconds a delete is remembered.
        history: Whether all versions of a key's row are kept, with `valid_from` and `valid_to`.
        stores_order: Whether the columns of `order_by` are stored in the table.
    """

    call: ClassVar[str] = "upsert"

    keys: tuple[str, ...] = ()
    order_by: str | None = None
    delete_when: str | None = None
    tombstones: float = 0.0
    history: bool = False
    stores_order: bool = True

    @property
    def upsert(self) -> Upsert:
        return self

    @property
    def added_columns(self) -> tuple[str, ...]:
        return (VALID_FROM, VALID_TO) if self.history else ()

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (*super().sql_texts, *([self.delete_when] if self.delete_when else []))

    @property
    def extra_arguments(self) -> tuple[str, ...]:
        """The names of the given arguments that change how the newest row of a key is found or kept."""
        return tuple(name for name in ("order_by", "delete_when", "history") if getattr(self, name))

    def text(self) -> str:
        parts = [f"upsert by {', '.join(self.keys) or 'the key of the records'}"]
        if self.order_by:
            parts.append(f"newest by {self.order_by}")
        if self.delete_when:
            parts.append(f"delete when {self.delete_when}, remembered for {show_seconds(self.tombstones)}")
        if self.history:
            parts.append("all versions kept")
        return ", ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Delete(Mode):
    """Deletes every row whose key arrives."""

    call: ClassVar[str] = "delete"

    keys: tuple[str, ...] = ()

    def text(self) -> str:
        return f"delete by {', '.join(self.keys)}"


@dataclass(frozen=True, kw_only=True)
class MergeSql(Mode):
    """The user's own MERGE. The query calls the table `target`, and the rows of the batch `batch`."""

    call: ClassVar[str] = "merge_sql"

    query: str

    @property
    def merge(self) -> str:
        return self.query

    def text(self) -> str:
        return f"merge_sql({' '.join(self.query.split())})"


@dataclass(frozen=True, kw_only=True)
class Groups(Mode):
    """Upserts the groups of a materialized view, in which null is a group too. A run uses it in place of `Upsert`."""

    call: ClassVar[str] = "upsert"

    keys: tuple[str, ...] = ()

    def text(self) -> str:
        return f"the groups of {', '.join(self.keys)}"


MODES: Mapping[type[Mode], ModeTraits] = {
    Append: ModeTraits(rewrites_same_inputs=False, only_adds=True, columnar=True),
    Overwrite: ModeTraits(replaces_foreign_rows=True, idempotent=True, empties_routed_tables=True),
    OverwritePartitions: ModeTraits(replaces_foreign_rows=True, idempotent=True, needs_partitions=True, columnar=True),
    # On v2 each batch writes the deletes since the last compaction again; deletion vectors need v3.
    Upsert: ModeTraits(idempotent=True, keyed=True, columnar=True, table_format=3),
    Delete: ModeTraits(stores_columns=False, keyed=True),
    MergeSql: ModeTraits(stores_columns=False, routable=False),
    Groups: ModeTraits(idempotent=True, table_format=3),
}
