"""Explains why a row is in a table: its commit, what the commit read, and the history of its key; without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from helios.errors import HeliosError
from helios.lineage.manifests import Manifests
from helios.lineage.passed import key_in_source
from helios.lineage.past import EarlierMetadata
from helios.lineage.predicate import comparable, parse_condition, rows_with_values_of, value_combinations
from helios.lineage.rejected import Rejected, newest_first, rejected
from helios.lineage.rows import Row, Rows, TooManyRows
from helios.lineage.versions import Origin, SnapshotNode, Version, Walk, snapshot_node
from helios.sources.common.kind import SourceKind
from helios.sources.common.lookup import SourceLookup
from helios.table.commits import NOT_WRITTEN, Commit, commit_in, commits, never_written
from helios.table.ledger import records
from helios.table.positions import Span
from helios.table.refs import REPLAY, translating_errors
from helios.table.snapshots import Table
from helios.table.view import View

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

MAX_ROWS = 20
"""The maximum number of rows that are explained."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """The span that the commit of a row read from one source.

    Attributes:
        text: The span as text.
        entry: The span as in the ledger.
        again: The rows of the key that the source has now; None without a key, or if this kind of source cannot be
            searched without Spark.
    """

    source: str
    text: str
    entry: Mapping[str, Any]
    again: SourceLookup | None


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A row and its origin.

    Attributes:
        version: The row and its commits.
        reads: The spans that the row's commit read.
        earlier: The other versions of the row's key, newest first, except rows that have their own explanation.
        replayed: The quarantined row from which a replay wrote this row; empty without a replay.
        rejected: The rows of the row's key in quarantines.
    """

    version: Version
    reads: tuple[Read, ...] = ()
    earlier: tuple[Version, ...] = ()
    replayed: tuple[Rejected, ...] = ()
    rejected: tuple[Rejected, ...] = ()


@dataclass(kw_only=True)
class Why:
    """The answer to why rows are in a table.

    Attributes:
        matches: The number of rows that match.
        key: The columns that identify the versions of a row; empty if the rows have no key.
        key_from: A text that says where the key comes from.
        commits: The retained commits of main, and the expired commits that the answer names, by snapshot.
        expired: The snapshots of the expired commits in `commits`, which were found in earlier metadata files.
        rows: The first matching rows, explained.
        gone: If no row matches, the earlier rows that did, newest first.
        rejected: If no row matches, the rows of the key in quarantines.
        since: The time of the oldest commit that was read; None for a table without snapshots.
        before: The history before that time: "nothing" if there is none, otherwise "expired" or "not looked at".
        notes: Parts of the history that could not be read, and why.
    """

    table: str
    condition: str
    matches: int = 0
    key: tuple[str, ...] = ()
    key_from: str = ""
    commits: dict[int, Commit] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    rows: list[Explained] = field(default_factory=list)
    gone: list[Version] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    since: datetime | None = None
    before: str = "nothing"
    notes: list[str] = field(default_factory=list)


def why(table: Table, condition: str, view: View) -> Why:
    """Explains the rows of a table that match a condition.

    Args:
        condition: Comparisons of the table's columns with values, in the syntax of `parse_condition`.
        view: Loads sources and quarantines, and knows the warehouses with the plans of pipelines.

    Raises:
        InputError: The condition does not parse, or has an unknown column.
        RunError: A file cannot be read, or the table has equality deletes.
    """
    expression = parse_condition(condition, table.iceberg.schema(), table.name)
    with translating_errors(table, "reading its files"):
        return _Question(table, condition, expression, view).answer()


class _Question:
    """Finds the answer for the condition of one call of `why`."""

    def __init__(self, table: Table, text: str, condition: BooleanExpression, view: View) -> None:
        self._table, self._condition, self._view = table, condition, view
        on_main = commits(table, view.warehouses, view.checkpoints)  # newest first
        self._main = [commit.snapshot for commit in reversed(on_main)]
        by_id = {commit.snapshot: commit for commit in on_main}
        metadata = table.iceberg.metadata
        ids = [raw.snapshot_id for raw in metadata.snapshots]
        self._known: dict[int, SnapshotNode] = {id: snapshot_node(metadata, id, by_id.get(id)) for id in ids}
        self._earlier_metadata = EarlierMetadata(table)
        self._answer = Why(table=table.name, condition=text, commits=by_id)

    def answer(self) -> Why:
        answer = self._answer
        if not self._main:
            return answer
        rows = Rows(self._table, self._condition, self._without_lineage())
        files = Manifests(self._table, self._condition).files(self._main[-1])
        answer.matches, first = rows.count(files, MAX_ROWS)
        self._choose_key()
        if answer.matches:
            self._explain(first)
        else:
            self._explain_missing()
        if never_written(answer.commits.values(), self._table):
            answer.notes.append(NOT_WRITTEN)
        return answer

    def _without_lineage(self) -> list[int]:
        return [node.id for node in self._known.values() if not node.has_lineage]

    def _expired(self, sequence: int) -> SnapshotNode | None:
        """Looks up an expired snapshot by its sequence number in earlier metadata files."""
        earlier_commit = self._earlier_metadata.with_sequence_number(sequence)
        if earlier_commit is None:
            return None
        metadata, id = earlier_commit
        commit = self._answer.commits[id] = commit_in(metadata, id, self._view.warehouses, self._view.checkpoints)
        self._answer.expired.add(id)
        return snapshot_node(metadata, id, commit)

    def _walk(self, condition: BooleanExpression) -> Walk:
        """Walks through the history of the rows that match a condition; raises `TooManyRows` if too many rows match."""
        rows = Rows(self._table, condition, self._without_lineage())
        walk = Walk(self._known, self._main, Manifests(self._table, condition), rows, self._expired)
        assert walk.start is not None  # main has snapshots
        self._answer.since = self._answer.commits[walk.start.id].committed
        self._answer.before = "nothing" if walk.start.is_first and not walk.cut else walk.before_start
        return walk

    # matching rows

    def _explain(self, first: Sequence[Row]) -> None:
        answer, values = self._answer, [row.values for row in first]
        walk = self._history(values)
        by_key: dict[str, list[Version]] = {}
        for version in walk.versions if walk is not None and answer.key else ():
            by_key.setdefault(self._key_of(version.row), []).append(version)
        keys = [{name: row[name] for name in answer.key} for row in values]
        explained = {row.place for row in first}
        for row, key, rejected_rows in zip(first, keys, self._rejected(keys), strict=True):
            unknown = Version(row, Origin(unknown="too many rows are equal to it"))
            version = walk.current.get(row.place, unknown) if walk is not None else unknown
            others = [
                other
                for other in by_key.get(self._key_of(row), ())
                if other is not version and (other.removed is not None or other.row.place not in explained)
            ]
            answer.rows.append(
                Explained(
                    version=version,
                    reads=tuple(self._reads(version, key)),
                    earlier=tuple(reversed(others)),
                    replayed=tuple(self._replayed(version, key)),
                    rejected=tuple(rejected_rows),
                )
            )

    def _history(self, values: Sequence[Mapping[str, Any]]) -> Walk | None:
        """The history of all rows of the keys, or of equal rows if those are too many; None if both are too many."""
        answer = self._answer
        if answer.key:
            try:
                return self._walk(rows_with_values_of(values, answer.key))
            except TooManyRows:
                names = ", ".join(answer.key)
                answer.notes.append(f"too many rows have the same {names}: other versions are not shown.")
                answer.key, answer.key_from = (), ""
        columns = comparable(self._table.iceberg.schema())
        try:
            return self._walk(rows_with_values_of(values, columns)) if columns else None
        except TooManyRows:
            return None

    def _key_of(self, row: Row) -> str:
        return repr([row.values[name] for name in self._answer.key])

    def _choose_key(self) -> None:
        """Chooses the key: the keys of a pipeline, else the identifier fields, else the columns of the condition."""
        answer, schema = self._answer, self._table.iceberg.schema()
        columns = {name.lower(): name for name in schema.column_names} | {name: name for name in schema.column_names}
        candidates: list[tuple[str, Sequence[str]]] = []
        try:
            for pipeline, record in records(self._table.iceberg.properties, self._table.name).items():
                keys = (record.upserts or {}).get("keys") or ()
                candidates.append((f"the keys of {pipeline}", keys))
        except HeliosError as error:
            answer.notes.append(error.what)
        ids = [str(schema.find_column_name(id)) for id in schema.identifier_field_ids]
        candidates.append(("the table's identifier fields", ids))
        compared = {tuple(values) for values in value_combinations(self._condition)}
        candidates.append(("the columns that the condition compares", compared.pop() if len(compared) == 1 else ()))
        allowed = set(comparable(schema))
        for key_from, names in candidates:
            # The exact name first: a table may have both `A` and `a`.
            found = [columns.get(name, columns.get(name.lower())) for name in names]
            key = tuple(name for name in found if name is not None)
            if key and len(key) == len(names) and set(key) <= allowed:
                answer.key, answer.key_from = key, key_from
                return

    # no matching row

    def _explain_missing(self) -> None:
        answer = self._answer
        try:
            walk = self._walk(self._condition)
        except TooManyRows:
            answer.notes.append("too many rows matched the condition earlier: use a condition that fewer rows match.")
        else:
            answer.gone = [version for version in reversed(walk.versions) if version.removed is not None][:MAX_ROWS]
        keys = value_combinations(self._condition)
        answer.rejected = newest_first(self._rejected(keys)) if keys else []

    # sources and quarantines

    def _reads(self, version: Version, key: Mapping[str, Any]) -> list[Read]:
        if len(version.origin.snapshots) != 1:
            return []
        commit = self._answer.commits.get(version.origin.snapshots[0])
        if commit is None:
            return []
        # With an empty key, the source is not searched. It has no rows of replays, whose origin `_replayed` shows, and
        # no rows that a backfill read with `--from`.
        if (commit.pipeline or "").endswith(REPLAY) or commit.instead is not None:
            key = {}
        redone = self._answer.commits.get(commit.redone) if commit.redone is not None else None
        redone_spans = {span.source: span for span in redone.spans} if redone is not None else {}
        spans = [redone_spans.get(span.source, span) for span in commit.spans]
        declared = {source["name"]: source for source in commit.plan.plan["sources"]} if commit.plan is not None else {}
        key, not_searched = key_in_source(commit.plan.plan["steps"] if commit.plan is not None else None, key)
        return [
            Read(
                source=entry.source,
                text=text,
                entry=span.entry,
                again=not_searched or self._look_up(entry.kind, span, key, declared.get(entry.source, {})),
            )
            for entry, text, span in zip(commit.reads, commit.read_texts, spans, strict=True)
        ]

    def _look_up(
        self, kind: SourceKind | None, span: Span, key: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> SourceLookup | None:
        if kind is None or kind.lookup is None or not key:
            return None
        again = resolve_name(kind.lookup)(span, key, declared, self._view)
        assert isinstance(again, SourceLookup)
        return again

    def _replayed(self, version: Version, key: Mapping[str, Any]) -> list[Rejected]:
        """Finds the quarantined row from which a replay wrote a row; empty for other rows."""
        writers = [self._answer.commits[id] for id in version.origin.snapshots if id in self._answer.commits]
        if len(writers) != 1 or not key or not (writers[0].pipeline or "").endswith(REPLAY):
            return []
        pipeline = str(writers[0].pipeline).removesuffix(REPLAY)
        replayed: list[Rejected] = []
        for entry in writers[0].reads:
            at = entry.position.snapshot if entry.position is not None else None
            [rows] = self._in_quarantine(entry.source, [pipeline], [key], at)
            replayed += rows
        return replayed

    def _rejected(self, keys: Sequence[Mapping[str, Any]]) -> list[list[Rejected]]:
        """The rows of each key in the quarantines of the table's pipelines."""
        try:
            by_pipeline = records(self._table.iceberg.properties, self._table.name)
        except HeliosError:
            by_pipeline = {}  # `_choose_key` has noted the error
        tables: dict[str, list[str]] = {}
        for pipeline, record in by_pipeline.items():
            for name in record.quarantines:
                tables.setdefault(name, []).extend([pipeline, *record.formerly])
        by_table = [self._in_quarantine(name, pipelines, keys, None) for name, pipelines in tables.items()]
        return [newest_first(by_key[index] for by_key in by_table) for index in range(len(keys))]

    def _in_quarantine(
        self, name: str, pipelines: Sequence[str], keys: Sequence[Mapping[str, Any]], at: int | None
    ) -> list[list[Rejected]]:
        """Reads the rows of each key in a quarantine. If it cannot be read, adds a note instead."""
        try:
            quarantine = self._view.load(name)
            if quarantine is None:
                raise HeliosError(f"the catalog of {name} is not declared.")
            if at is not None and quarantine.iceberg.metadata.snapshot_by_id(at) is None:
                raise HeliosError(f"snapshot {at} of {name}, which a replay read, has expired.")
            return rejected(quarantine, pipelines, keys, at)
        except HeliosError as error:
            if error.what not in self._answer.notes:
                self._answer.notes.append(error.what)
            return [[] for _ in keys]
