"""Declares an Iceberg table as a source: which rows are read, and how the table is followed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypeVar, get_args

from helios.errors import DeclarationError, near_miss
from helios.model.arguments import column_fix, count, listed
from helios.model.expressions import SqlText, sql_text
from helios.model.flow import DEFAULT_POLL, Source
from helios.model.values import Identifier, Point, caller, counted, duration, show_seconds

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog

Start: TypeAlias = Literal["current", "latest", "earliest"]
STARTS: tuple[Start, ...] = get_args(Start)
"""The named starting points of a followed table; a snapshot id is a starting point, too."""

LINEAGE_SINCE = 3
"""The first format version with row lineage: the id of each row, and the commit that changed the row last."""

T = TypeVar("T")

OnOverwrite: TypeAlias = Literal["fail", "skip"]
OnExpired: TypeAlias = Literal["fail", "rebootstrap"]


@dataclass(frozen=True)
class At:
    """A state of the table, and the call that named it.

    Attributes:
        call: `as_of`, `at_snapshot` or `at_ref`.
        point: A time, an id, or a branch or tag.
    """

    call: str
    point: Point

    def __str__(self) -> str:
        return f"{self.call}({_shown(self.point)})"


@dataclass(frozen=True)
class Between:
    """The history after one point, up to and including another."""

    after: Point
    to: Point

    def __str__(self) -> str:
        return f"{_shown(self.after)}, {_shown(self.to)}"


@dataclass(frozen=True)
class Changes:
    """Row-level changes. The keys, or else row lineage, pair the two images of an update."""

    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"keys={list(self.keys)}" if self.keys else ""


@dataclass(frozen=True, kw_only=True)
class IcebergSource(Source):
    """An Iceberg table, read once or followed. Created by `Iceberg.source`.

    Attributes:
        table: The name of the table.
        catalog: The declared catalog, or its name; None if none is declared.
        start: The declared start of a followed table; None if none is declared.
        at: The declared state, which is read once, or is read first if the table is followed; None if none is declared.
        between_points: The range of history that is read instead of a state.
        changed: How row-level changes are read; None if rows are read.
        columns: The columns that are read; all columns if empty.
        overwrites: What to do with commits that overwrite or delete.
        expired: What to do when the next snapshot has expired.
        vector: The number of rows in a vectorized read batch; None for Iceberg's default.
    """

    kind: ClassVar[str] = "iceberg"
    commits_in_positions: ClassVar[bool] = True

    table: Identifier
    catalog: Catalog | str | None = None
    start: int | Start | None = None
    at: At | None = None
    between_points: Between | None = None
    changed: Changes | None = None
    columns: tuple[str, ...] = ()
    overwrites: OnOverwrite = "fail"
    expired: OnExpired = "fail"
    vector: int | None = None

    @property
    def declared_start(self) -> int | Start | None:
        return self.start

    @property
    def reads_changes(self) -> bool:
        return self.changed is not None

    @property
    def pairs_by_keys(self) -> bool:
        return self.changed is not None and bool(self.changed.keys)

    @property
    def rebootstraps(self) -> bool:
        return self.expired == "rebootstrap"

    @property
    def takes_predicates(self) -> bool:
        return not self.reads_changes  # changes are computed from whole files

    @property
    def why_no_past(self) -> str | None:
        fixed = self.at is not None or self.between_points is not None or self.reads_changes
        return "is one state or range of the table, and not its history" if fixed else None

    @property
    def engine_columns_or_reason(self) -> tuple[str, ...] | str:
        if self.reads_changes:
            return "it reads changes"
        return "it reads a part of the history" if self.between_points is not None else self.columns

    @property
    def reference(self) -> tuple[Identifier, Catalog | str | None]:
        return self.table, self.catalog

    @property
    def step_texts(self) -> tuple[str, ...]:
        changes = (f"changes({self.changed})",) if self.changed is not None else ()
        return (*changes, *self.narrowing)

    # the state or range that is read

    def as_of(self, ts: datetime | str) -> Self:
        """Reads the state of the table at a time.

        Args:
            ts: A datetime or ISO 8601 text; without an offset it is UTC.

        Examples:
            >>> from helios import Iceberg
            >>> Iceberg.source("sales.orders").as_of("2026-01-01").label()
            "Iceberg.source(sales.orders).as_of('2026-01-01')"

        Raises:
            DeclarationError: The text is not a time.
        """
        try:
            moment = datetime.fromisoformat(ts) if isinstance(ts, str) else ts
        except ValueError:
            moment = None
        if not isinstance(moment, datetime):
            raise DeclarationError(
                f"as_of({ts!r}): this is not a time.",
                where=caller(),
                fix='write ISO 8601, as_of("2026-01-01T00:00:00Z"), or a datetime; a tag or a branch goes into '
                ".at_ref(name), a snapshot id into .at_snapshot(id).",
            )
        return replace(self, at=At("as_of", ts))

    def at_snapshot(self, id: int) -> Self:
        """Reads the state at a snapshot."""
        if isinstance(id, bool) or not isinstance(id, int):
            raise DeclarationError(f"at_snapshot({id!r}): a snapshot id is a whole number.", where=caller())
        return replace(self, at=At("at_snapshot", id))

    def at_ref(self, name: str) -> Self:
        """Reads the state of a tag or a branch. A followed branch continues with its own later commits."""
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"at_ref({name!r}): give the name of a tag or a branch.", where=caller())
        return replace(self, at=At("at_ref", name))

    def between(self, a: Point, b: Point) -> Self:
        """Reads the rows appended after `a`, up to and including `b`; after `.changes()`, the row-level changes.

        Args:
            a: A snapshot id, a time (a datetime or ISO text), or the name of a branch or a tag.
            b: A later point of the same history, in the same forms.
        """
        span = Between(_point("between", a), _point("between", b))
        return replace(self, between_points=span, changed=self.changed if self.between_points is None else None)

    def changes_between(self, a: Point, b: Point, keys: str | Iterable[str] | None = None) -> Self:
        """Reads the row-level changes after `a`, up to and including `b`, one change set per commit.

        The rows have the table's columns, followed by `_change_type` (`INSERT`, `DELETE`, `UPDATE_BEFORE` or
        `UPDATE_AFTER`), `_change_ordinal`, which grows with the commits, and `_commit_snapshot_id`.

        Args:
            a: As for `between`.
            b: As for `between`.
            keys: The columns that identify a row, and so pair the two images of an update. Without keys, row lineage
                pairs the images if the table has format v3; on other tables an update is a delete and an insert.
        """
        call = "changes_between"
        span = Between(_point(call, a), _point(call, b))
        return replace(self, between_points=span, changed=Changes(_keys(call, keys)))

    def changes(self, keys: str | Iterable[str] | None = None) -> Self:
        """With `.incremental()`, reads row-level changes rather than rows; columns and keys as in `changes_between`.

        The pipeline first delivers the rows of its starting state, as inserts.
        """
        return replace(self, changed=Changes(_keys("changes", keys)))

    # how it is followed

    def incremental(
        self,
        poll: float | str | timedelta = DEFAULT_POLL,
        *,
        start: int | Start | None = None,
        max_rows: int | None = None,
        max_files: int | None = None,
    ) -> Self:
        """Follows the table: by default the state now, then every later commit, each row once.

        Args:
            poll: How often to look for new snapshots: seconds, text such as "30s", or a timedelta.
            start: "current": the state now, then every later commit; "latest": later commits only; "earliest": the
                oldest retained state, then every commit; a snapshot id: the commits after it. It counts at
                the first start of the pipeline; a different value later is an error.
            max_rows: The approximate limit of rows per batch, in whole files; the first state is limited, too.
            max_files: The maximum number of files of one batch.

        Examples:
            >>> from helios import Iceberg
            >>> Iceberg.source("sales.orders").incremental(poll="30s", start="latest").label()
            "Iceberg.source(sales.orders).incremental(poll=30 s, start='latest')"
        """
        known = start is None or (isinstance(start, int) and not isinstance(start, bool)) or start in STARTS
        if not known:
            raise DeclarationError(
                f"incremental(start={start!r}): unknown start. {near_miss(str(start), STARTS)}",
                where=caller(),
                fix='give "current", "latest", "earliest" or a snapshot id; a time goes into .as_of(ts).',
            )
        return replace(
            self,
            poll=duration(poll, "poll"),
            start=start,
            max_rows=count(max_rows, "max_rows"),
            max_files=count(max_files, "max_files"),
        )

    def on_overwrite(self, what: OnOverwrite) -> Self:
        """Sets the policy of an incremental read for commits that overwrite or delete: "fail" (default) or "skip"."""
        return replace(self, overwrites=_one_of("on_overwrite", what, ("fail", "skip")))

    def on_expired(self, what: OnExpired) -> Self:
        """Sets the policy for an expired next snapshot: "fail" (default) or "rebootstrap".

        "rebootstrap" reads the current state again, if the target makes that idempotent (an upsert, an overwrite),
        or if the row lineage of a table of format v3 proves which rows were delivered.
        """
        return replace(self, expired=_one_of("on_expired", what, ("fail", "rebootstrap")))

    # filters and columns

    def where(self, condition: SqlText) -> Self:
        """Keeps only rows that meet a Spark SQL predicate. Files that cannot have such rows are not opened."""
        condition = sql_text(condition)
        if not isinstance(condition, str) or not condition.strip():
            fix = column_fix(condition) or 'write where("amount > 0").'
            raise DeclarationError("where() needs a predicate.", where=caller(), fix=fix)
        return replace(self, conditions=(*self.conditions, condition))

    def select(self, *columns: str | Sequence[str]) -> Self:
        """Reads only these columns, and the change columns if changes are read."""
        names = listed(columns)
        if not names or not all(isinstance(column, str) and column.strip() for column in names):
            raise DeclarationError("select() needs column names.", where=caller(), fix='write select("id", "amount").')
        return replace(self, columns=tuple(map(_unquoted, names)))

    def batch_size(self, rows: int) -> Self:
        """Sets the number of rows in a vectorized read batch; Iceberg's default is 5,000."""
        return replace(self, vector=count(rows, "batch_size"))

    # plan and label

    def details(self, format_version: int | None = None) -> Iterator[str]:
        if self.columns:
            yield "columns: " + ", ".join(self.columns)
        if self.changed is not None:
            yield f"changes: {_pairing(self.changed, format_version)}"
        if self.vector is not None:
            yield f"{counted(self.vector, 'row')} a vectorized batch (batch_size())"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "format_version": found["format_version"],
            "branch": found["branch"],
            "start": self.start,
            "at": str(self.at) if self.at is not None else None,
            "between": str(self.between_points) if self.between_points is not None else None,
            "state": found["state"],
            "span": found["span"],
            "where": list(self.conditions),
            "columns": list(self.columns),
            "changes": {"keys": list(self.changed.keys)} if self.changed is not None else None,
            "on_overwrite": self.overwrites,
            "on_expired": self.expired,
            "batch_size": self.vector,
            "scan": found["scan"],
            "backlog": found["backlog"],
        }

    @property
    def narrowing(self) -> tuple[str, ...]:
        """The calls that select rows and columns."""
        selected = (f"select({', '.join(map(repr, self.columns))})",) if self.columns else ()
        return (*(f"where({condition!r})" for condition in self.conditions), *selected)

    def label(self) -> str:
        calls = [f"Iceberg.source({self.table})"]
        if self.at is not None:
            calls.append(str(self.at))
        if self.poll is not None:
            arguments = {"start": self.start, "max_rows": self.max_rows, "max_files": self.max_files}
            others = "".join(f", {name}={value!r}" for name, value in arguments.items() if value is not None)
            calls.append(f"incremental(poll={show_seconds(self.poll)}{others})")
        if self.between_points is not None and self.changed is not None:
            calls.append(f"changes_between({self.between_points}{', ' if self.changed.keys else ''}{self.changed})")
        elif self.between_points is not None:
            calls.append(f"between({self.between_points})")
        elif self.changed is not None:
            calls.append(f"changes({self.changed})")
        calls += self.narrowing
        if self.overwrites != "fail":
            calls.append(f"on_overwrite({self.overwrites!r})")
        if self.expired != "fail":
            calls.append(f"on_expired({self.expired!r})")
        return ".".join(calls)


def _shown(point: Point) -> str:
    return repr(point.isoformat()) if isinstance(point, datetime) else repr(point)


def _pairing(changed: Changes, format_version: int | None) -> str:
    """How the two images of an updated row are paired."""
    if changed.keys:
        return f"updates paired by {', '.join(changed.keys)}"
    if format_version is None:
        return "updates paired by row lineage, if the table has format v3"
    return "updates paired by row lineage" if format_version >= LINEAGE_SINCE else "an update is a delete and an insert"


def _keys(call: str, keys: str | Iterable[str] | None) -> tuple[str, ...]:
    if keys is None:
        return ()
    columns = tuple(keys) if isinstance(keys, Iterable) and not isinstance(keys, str) else (keys,)
    if not all(isinstance(key, str) and key.strip() for key in columns):
        raise DeclarationError(
            f"{call}(keys={keys!r}): keys are column names.",
            where=caller(),
            fix='pass keys="id", or keys=["id", "day"].',
        )
    return tuple(map(_unquoted, columns))


def _point(call: str, point: Point) -> Point:
    if isinstance(point, bool) or not isinstance(point, int | str | datetime) or point == "":
        raise DeclarationError(
            f"{call}({point!r}): this does not name a snapshot.",
            where=caller(),
            fix="give a snapshot id, a time (a datetime or ISO 8601 text), or the name of a branch or a tag.",
        )
    return point


def _unquoted(name: str) -> str:
    """A column's name without the backticks around it."""
    name = name.strip()
    return name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name


def _one_of(call: str, value: T, known: tuple[T, ...]) -> T:
    if value not in known:
        raise DeclarationError(f"{call}({value!r}): {near_miss(str(value), list(map(str, known)))}", where=caller())
    return value
