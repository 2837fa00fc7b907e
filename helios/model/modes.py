"""How a batch changes its table: one value per write mode of an Iceberg sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from helios.model.values import show_seconds

VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""The columns that `upsert(history=True)` adds."""


class Traits(NamedTuple):
    """The traits of a write mode: a row of `MODES`.

    Attributes:
        reruns: Whether a batch pipeline writes identical inputs again when it is run again.
        stores: Whether the target gets the stream's columns.
        erases: Whether it replaces rows of other writers, so that it must have read their commits.
        idempotent: Whether rows that arrive again do no harm.
        keyed: Whether every row needs a key that is not null.
        clears: Whether a routed table is cleared when no row has its value any more.
        partitioned: Whether the target needs partitions.
        routable: Whether `.route` can name the table.
        columnar: Whether the columnar engine writes it.
        format: The format version of a table that the mode creates.
    """

    reruns: bool = True
    stores: bool = True
    erases: bool = False
    idempotent: bool = False
    keyed: bool = False
    clears: bool = False
    partitioned: bool = False
    routable: bool = True
    columnar: bool = False
    format: int = 2


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A write mode: each has the fields of its call, and answers what is asked of all modes.

    Attributes:
        call: The method of the sink that declares it.
    """

    call: ClassVar[str] = ""

    @property
    def traits(self) -> Traits:
        return MODES[type(self)]

    @property
    def upsert(self) -> Upsert | None:
        """The mode itself if it is an upsert, with its own fields; None for all other modes."""
        return None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns; none where rows are not told apart by keys."""
        return ()

    @property
    def order_by(self) -> str | None:
        """SQL expression whose largest value marks the newest row; None where the order of rows is not declared."""
        return None

    @property
    def condition(self) -> str | None:
        """SQL condition of the rows that are replaced, which every row of a batch meets; None without one."""
        return None

    @property
    def merge(self) -> str | None:
        """The user's own MERGE; None where Helios writes the change."""
        return None

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns that the target has beside those of the stream."""
        return ()

    @property
    def sql_texts(self) -> tuple[str, ...]:
        """The SQL that Spark evaluates when it writes."""
        return tuple(text for text in (self.condition, self.order_by, self.merge) if text)

    @property
    def whole(self) -> bool:
        """True if it replaces the whole table."""
        return self.traits.clears and self.condition is None

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
    """Replaces the rows that a filter names; all of them without one."""

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
    """Keeps the newest row per key, or all its versions.

    Attributes:
        keys: The key columns; none where the records have their own.
        order_by: SQL expression whose largest value marks the newest row; None: rows of a later batch win.
        delete_when: SQL condition of rows that delete their key.
        tombstones: How many seconds a delete is remembered.
        history: Whether versions are kept, from `valid_from` to `valid_to`.
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
    def adds(self) -> tuple[str, ...]:
        return (VALID_FROM, VALID_TO) if self.history else ()

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (*super().sql_texts, *([self.delete_when] if self.delete_when else []))

    @property
    def more(self) -> tuple[str, ...]:
        """The names of the arguments that make it more than the newest row of each key."""
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
    """The user's own MERGE, whose target is called `target` and whose rows are called `batch`."""

    call: ClassVar[str] = "merge_sql"

    query: str

    @property
    def merge(self) -> str:
        return self.query

    def text(self) -> str:
        return f"merge_sql({' '.join(self.query.split())})"


@dataclass(frozen=True, kw_only=True)
class Groups(Mode):
    """Keeps the groups of a materialized view, where null is a group too; a run makes it of the view's upsert."""

    call: ClassVar[str] = "upsert"

    keys: tuple[str, ...] = ()

    def text(self) -> str:
        return f"the groups of {', '.join(self.keys)}"


MODES: Mapping[type[Mode], Traits] = {
    Append: Traits(reruns=False, columnar=True),
    Overwrite: Traits(erases=True, idempotent=True, clears=True),
    OverwritePartitions: Traits(erases=True, idempotent=True, partitioned=True, columnar=True),
    # On v2 each batch writes the deletes since the last compaction again; deletion vectors need v3.
    Upsert: Traits(idempotent=True, keyed=True, columnar=True, format=3),
    Delete: Traits(stores=False, keyed=True),
    MergeSql: Traits(stores=False, routable=False),
    Groups: Traits(idempotent=True, format=3),
}
"""Every write mode: one row each."""
