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
        upserts: Whether rows are merged by their keys.
        clears: Whether a routed table is cleared when no row has its value any more.
        partitioned: Whether the target needs partitions.
        routable: Whether `.route` can name the table.
        format: The format version of a table that the mode creates.
    """

    reruns: bool = True
    stores: bool = True
    erases: bool = False
    idempotent: bool = False
    keyed: bool = False
    upserts: bool = False
    clears: bool = False
    partitioned: bool = False
    routable: bool = True
    format: int = 2


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A write mode. The attributes are those of all modes, empty where a mode does not have them: that makes one
    dataclass of them, which `import helios` pays for once.

    Attributes:
        call: The method of the sink that declares it.
        keys: The key columns.
        filter: The rows that are overwritten, as an SQL condition.
        order_by: SQL expression whose largest value marks the newest row; None: rows of a later batch win.
        delete_when: SQL condition of rows that delete their key.
        tombstones: How many seconds a delete is remembered.
        history: Whether versions are kept, from `valid_from` to `valid_to`.
        stores_order: Whether the columns of `order_by` are stored in the table.
        query: The user's own MERGE.
    """

    call: ClassVar[str] = ""

    keys: tuple[str, ...] = ()
    filter: str | None = None
    order_by: str | None = None
    delete_when: str | None = None
    tombstones: float = 0.0
    history: bool = False
    stores_order: bool = True
    query: str = ""

    @property
    def traits(self) -> Traits:
        return MODES[type(self)]

    @property
    def sql_texts(self) -> tuple[str, ...]:
        """The SQL that Spark evaluates when it writes."""
        return tuple(t for t in (self.filter, self.order_by, self.delete_when, self.query) if t)

    @property
    def whole(self) -> bool:
        """True if it replaces the whole table."""
        return self.traits.clears and self.filter is None

    def text(self) -> str:
        """The mode as the plan shows it."""
        raise NotImplementedError


class Append(Mode):
    """Adds the rows."""

    call: ClassVar[str] = "append"

    def text(self) -> str:
        return "append"


class Overwrite(Mode):
    """Replaces the rows that a filter names; all of them without one."""

    call: ClassVar[str] = "overwrite"

    def text(self) -> str:
        return f"overwrite where {self.filter}" if self.filter else "overwrite"


class OverwritePartitions(Mode):
    """Replaces the partitions that the batch touches."""

    call: ClassVar[str] = "overwrite_partitions"

    def text(self) -> str:
        return "overwrite the touched partitions"


class Upsert(Mode):
    """Keeps the newest row per key, or all its versions."""

    call: ClassVar[str] = "upsert"

    def text(self) -> str:
        parts = [f"upsert by {', '.join(self.keys) or 'the key of the records'}"]
        if self.order_by:
            parts.append(f"newest by {self.order_by}")
        if self.delete_when:
            parts.append(f"delete when {self.delete_when}, remembered for {show_seconds(self.tombstones)}")
        if self.history:
            parts.append("all versions kept")
        return ", ".join(parts)


class Delete(Mode):
    """Deletes every row whose key arrives."""

    call: ClassVar[str] = "delete"

    def text(self) -> str:
        return f"delete by {', '.join(self.keys)}"


class MergeSql(Mode):
    """The user's own MERGE, whose target is called `target` and whose rows are called `batch`."""

    call: ClassVar[str] = "merge_sql"

    def text(self) -> str:
        return f"merge_sql({' '.join(self.query.split())})"


class Groups(Mode):
    """Keeps the groups of a materialized view, where null is a group too; a run makes it of the view's upsert."""

    call: ClassVar[str] = "upsert"

    def text(self) -> str:
        return f"the groups of {', '.join(self.keys)}"


MODES: Mapping[type[Mode], Traits] = {
    Append: Traits(reruns=False),
    Overwrite: Traits(erases=True, idempotent=True, clears=True),
    OverwritePartitions: Traits(erases=True, idempotent=True, partitioned=True),
    # On v2 each batch writes the deletes since the last compaction again; deletion vectors need v3.
    Upsert: Traits(idempotent=True, keyed=True, upserts=True, format=3),
    Delete: Traits(stores=False, keyed=True),
    MergeSql: Traits(stores=False, routable=False),
    Groups: Traits(idempotent=True, format=3),
}
"""Every write mode: one row each."""
