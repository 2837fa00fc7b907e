"""A loaded table: its snapshots, branches and tags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from helios.errors import DeclarationError, NotFound, near_miss
from helios.model import html
from helios.model.values import Point, caller
from helios.table import refs
from helios.table.refs import Rollback
from helios.table.snapshot import Snapshot, as_moment, as_snapshot, from_milliseconds, shown

if TYPE_CHECKING:
    import pyiceberg.table

    from helios.table.maintenance import Expiry

__all__ = ["Snapshot", "Table", "as_moment", "as_snapshot"]

_SHOWN = 10
"""The maximum number of snapshots that a message lists."""


class Table:
    """A table in the state at which it was loaded. Methods that change it reload it first.

    Args:
        name: The full name, catalog first.
        iceberg: PyIceberg's own table.

    Examples:
        >>> import pyarrow as pa
        >>> from helios import Catalog
        >>> catalog = Catalog.memory("snapshots")
        >>> catalog.create_namespace("shop")
        >>> table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
        >>> table.iceberg.append(pa.table({"id": [1]}))
        >>> first = table.tag("first")
        >>> table.iceberg.append(pa.table({"id": [2]}))
        >>> len(table.snapshots()), table.rollback_to("first").snapshot == first
        (2, True)
    """

    def __init__(self, name: str, iceberg: pyiceberg.table.Table) -> None:
        self.name = name
        self.iceberg = iceberg

    def __repr__(self) -> str:
        return f"Table({self.name})"

    def _repr_html_(self) -> str:
        current, schema = self.current_snapshot(), self.iceberg.schema()
        columns = [(field.name, str(field.field_type), "required" if field.required else "") for field in schema.fields]
        partition = ", ".join(str(field.name) for field in self.iceberg.spec().fields)
        values = {
            "snapshot": f"{current.id}, {shown(current.timestamp)}" if current else "none yet",
            "rows": current.summary.get("total-records") if current else None,
            "files": current.summary.get("total-data-files") if current else None,
            "partitioned by": partition,
        }
        return html.name_value_table(self.name, values) + html.table(["column", "type", ""], columns)

    # reading

    def snapshots(self) -> list[Snapshot]:
        """All retained snapshots, of any branch or of none, oldest first."""
        return sorted(
            (as_snapshot(raw) for raw in self.iceberg.metadata.snapshots), key=lambda snapshot: snapshot.timestamp
        )

    def current_snapshot(self) -> Snapshot | None:
        """The snapshot that readers of main see; None for a table that was never written."""
        raw = self.iceberg.current_snapshot()
        return as_snapshot(raw) if raw else None

    def snapshot(self, id: int) -> Snapshot:
        """The snapshot with an id.

        Raises:
            NotFound: No retained snapshot has the id; the message names the newest snapshots.
        """
        if isinstance(id, bool) or not isinstance(id, int):
            raise DeclarationError(f"a snapshot id is a whole number, not {id!r}.", where=caller())
        matching = next((snapshot for snapshot in self.snapshots() if snapshot.id == id), None)
        if matching is None:
            raise NotFound(f"table {self.name} has no snapshot {id}. {_existing(self.snapshots())}", where=caller())
        return matching

    def snapshot_at(self, ts: datetime | str) -> Snapshot:
        """The snapshot that main had at a time.

        Args:
            ts: A datetime or ISO 8601 text; without an offset it is UTC.

        Raises:
            NotFound: The time is before the first retained state of main.
            DeclarationError: The text is not a time.
        """
        moment = as_moment(ts)
        # From the log, not the snapshots: after a rollback, the newest snapshot by time is not the current one.
        log = self.iceberg.metadata.snapshot_log
        past = [entry.snapshot_id for entry in log if from_milliseconds(entry.timestamp_ms) <= moment]
        if past:
            return self.snapshot(past[-1])
        first_state = (
            f"its first state is of {shown(from_milliseconds(log[0].timestamp_ms))}" if log else "main has no snapshots"
        )
        raise NotFound(f"table {self.name} had no snapshot at {shown(moment)}: {first_state}.", where=caller())

    def tags(self) -> dict[str, int]:
        """The snapshot ids of the tags, by name."""
        return self._refs("tag")

    def branches(self) -> dict[str, int]:
        """The snapshot ids of the branches' heads, by name; `main` is missing until the table has been written."""
        return self._refs("branch")

    def find(self, point: Point) -> Snapshot:
        """The snapshot that an id, a time, a branch or a tag names.

        Args:
            point: An id, a time of main (a datetime or ISO text), or the name of a branch or a tag.

        Raises:
            NotFound: There is no such snapshot, time, branch or tag.
            DeclarationError: The text is both a time and a name.
        """
        if isinstance(point, datetime):
            return self.snapshot_at(point)
        if not isinstance(point, str):
            return self.snapshot(point)
        names = {**self.branches(), **self.tags()}
        if _is_time(point):
            if point in names:
                raise DeclarationError(
                    f"{point!r} is a time, and also a name in table {self.name}.",
                    where=caller(),
                    fix=f"give the snapshot id {names[point]}, or a datetime.",
                )
            return self.snapshot_at(point)
        if point not in names:
            raise NotFound(
                f"table {self.name} has no branch or tag {point!r}, and it is not a time. {near_miss(point, names)}",
                where=caller(),
            )
        return self.snapshot(names[point])

    # changing

    def tag(self, name: str, snapshot: Point | None = None) -> Snapshot:
        """Names a snapshot, which then does not expire.

        Args:
            name: The tag.
            snapshot: An id, a time, a branch or another tag; by default the current snapshot.

        Returns:
            The snapshot.

        Raises:
            InputError: The name exists or is invalid, the snapshot does not exist, or the table is empty.
            RunError: The table was changed meanwhile, or the catalog cannot be reached.
        """
        return refs.apply(self, refs.creation(self, "create_tag", name, snapshot))

    def branch(self, name: str, snapshot: Point | None = None) -> Snapshot:
        """Creates a branch, at the current snapshot or another one; otherwise as `tag`."""
        return refs.apply(self, refs.creation(self, "create_branch", name, snapshot))

    def drop_tag(self, name: str) -> Snapshot:
        """Removes a tag, and returns the snapshot that it named. The snapshot itself stays.

        Raises:
            NotFound: There is no such tag.
        """
        return refs.apply(self, refs.removal(self, "remove_tag", name))

    def drop_branch(self, name: str) -> Snapshot:
        """Removes a branch, and returns its head. Snapshots that no other branch or tag has can then expire.

        Raises:
            NotFound: There is no such branch.
            DeclarationError: The branch is `main`.
        """
        return refs.apply(self, refs.removal(self, "remove_branch", name))

    def rollback_to(self, point: Point) -> Rollback:
        """Sets main to a snapshot that it had before, earlier or later; no snapshot is lost.

        A Helios pipeline whose last batch is no longer in main stops at its next batch with an error. So does a
        pipeline that follows the table and has read beyond the snapshot.

        Args:
            point: An id, a time, or a tag.

        Raises:
            NotFound: There is no such snapshot, time or tag.
            InputError: Main was never at that snapshot.
            RunError: The table was changed meanwhile, or the catalog cannot be reached.
        """
        change, done = refs.rollback(self, point)
        if change is not None:
            refs.apply(self, change)
        return done

    def expiry(
        self,
        older_than: datetime | str | timedelta | float | None = None,
        retain_last: int | None = None,
        *,
        readers: Sequence[str] = (),
    ) -> Expiry:
        """The snapshots that `expire` would remove, and the readers for which it would keep some. Changes nothing."""
        from helios.table import maintenance

        return maintenance.default_expiry_plan(self, older_than, retain_last, readers)

    def expire(
        self,
        older_than: datetime | str | timedelta | float | None = None,
        retain_last: int | None = None,
        *,
        readers: Sequence[str] = (),
    ) -> Expiry:
        """Removes old snapshots from the table's metadata. Their files stay on the storage, as no JVM deletes them.

        `helios orphans` deletes files that no snapshot names. `helios expire` deletes the files too.

        The heads of branches and tags stay, and so do all snapshots that a known reader needs. Known readers are
        `readers`, and all pipelines with a checkpoint in a warehouse of the configured catalogs (by the configuration
        of the calling script, and that of the working directory).

        Args:
            older_than: A time, or an age: "7d", a timedelta, or seconds. By default the table's own property
                `history.expire.max-snapshot-age-ms`, or 5 days; if only `retain_last` is given, age does not count.
            retain_last: How many snapshots of every branch stay in any case; by default the table's own setting, or 1.
            readers: Checkpoints of further readers.

        Returns:
            The removed snapshots, possibly none, and those that were kept for readers.

        Raises:
            CheckpointError: A reader's checkpoint cannot be read.
            EngineNeeded: The table has format v3, in a catalog without a server of its own.
            RunError: The table was changed during each of several tries, or the catalog or a storage cannot be reached.
        """
        from helios.table import maintenance

        return maintenance.expire(self, older_than, retain_last, readers)

    # implementation

    def _refs(self, kind: str) -> dict[str, int]:
        refs = sorted(self.iceberg.metadata.refs.items())
        return {name: ref.snapshot_id for name, ref in refs if ref.snapshot_ref_type.value == kind}


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _existing(snapshots: Iterable[Snapshot]) -> str:
    newest = sorted(snapshots, key=lambda snapshot: snapshot.timestamp, reverse=True)
    if not newest:
        return "It has none."
    listed = ", ".join(f"{snapshot.id} ({shown(snapshot.timestamp)})" for snapshot in newest[:_SHOWN])
    return f"Newest: {listed}{', ...' if len(newest) > _SHOWN else ''}."
