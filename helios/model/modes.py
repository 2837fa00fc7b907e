"""How a batch changes its table: one value per write mode of an Iceberg sink."""

from __future__ import annotations

from dataclasses import dataclass

from helios.model.values import show_seconds

VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""The columns that `upsert(history=True)` adds."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A write mode; `reruns` says whether a batch pipeline writes identical inputs again."""

    @property
    def reruns(self) -> bool:
        return True

    def text(self) -> str:
        """The mode as the plan shows it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Append(Mode):
    """Adds the rows."""

    @property
    def reruns(self) -> bool:
        return False

    def text(self) -> str:
        return "append"


@dataclass(frozen=True, kw_only=True)
class Overwrite(Mode):
    """Replaces the rows that a filter names; all of them without one."""

    filter: str | None = None

    def text(self) -> str:
        return f"overwrite where {self.filter}" if self.filter else "overwrite"


@dataclass(frozen=True, kw_only=True)
class OverwritePartitions(Mode):
    """Replaces the partitions that the batch touches."""

    def text(self) -> str:
        return "overwrite the touched partitions"


@dataclass(frozen=True, kw_only=True)
class Upsert(Mode):
    """Keeps the newest row per key, or all its versions.

    Attributes:
        keys: The key columns.
        order_by: SQL expression by which the newest row is told; None: rows of a later batch win.
        delete_when: SQL condition of rows that delete their key.
        tombstones: Seconds for which a delete is remembered.
        history: Whether versions are kept, from `valid_from` to `valid_to`.
    """

    keys: tuple[str, ...]
    order_by: str | None = None
    delete_when: str | None = None
    tombstones: float = 7 * 86400.0
    history: bool = False

    def text(self) -> str:
        parts = [f"upsert by {', '.join(self.keys)}"]
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

    keys: tuple[str, ...]

    def text(self) -> str:
        return f"delete by {', '.join(self.keys)}"


@dataclass(frozen=True, kw_only=True)
class MergeSql(Mode):
    """The user's own MERGE, whose target is called `target` and whose rows are called `batch`."""

    query: str

    def text(self) -> str:
        return f"merge_sql({' '.join(self.query.split())})"


MODES: tuple[type[Mode], ...] = (Append, Overwrite, OverwritePartitions, Upsert, Delete, MergeSql)
"""Every mode that a writer must know."""


@dataclass(frozen=True)
class Groups(Mode):
    """Keeps the groups of a materialized view, of which a null is one; a run makes it of the view's upsert."""

    keys: tuple[str, ...]

    def text(self) -> str:
        return f"the groups of {', '.join(self.keys)}"
