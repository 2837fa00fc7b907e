"""Why a row is in a table: the commit that wrote it, what that read, and what became of its key; without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from helios.errors import HeliosError
from helios.lineage.manifests import Manifests
from helios.lineage.past import Past
from helios.lineage.predicate import comparable, equal_to, having, parsed
from helios.lineage.rejected import Rejected, newest, rejected
from helios.lineage.rows import Row, Rows, TooMany
from helios.lineage.versions import Node, Origin, Version, Walk, node_of
from helios.sources.common.again import Again
from helios.sources.common.kind import SourceKind
from helios.table.commits import Commit, commit_in, commits
from helios.table.ledger import records
from helios.table.positions import Span
from helios.table.refs import REPLAY, talking
from helios.table.snapshots import Table
from helios.table.view import View

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

MOST = 20
"""Rows that are explained at most."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """What the commit of a row read of one source.

    Attributes:
        source: The source.
        text: The span for people.
        entry: The span as the ledger keeps it.
        again: The row, found again in the source; None for a kind of source that cannot be read again here.
    """

    source: str
    text: str
    entry: Mapping[str, Any]
    again: Again | None


@dataclass(frozen=True, kw_only=True)
class Explained:
    """A row, and where it comes from.

    Attributes:
        version: The row, from the commit that wrote it to the one that removed it.
        reads: What that commit read.
        earlier: The other versions of its key, newest first; without those that are explained themselves.
        replayed: The row as the quarantine had it, where a replay brought it.
        rejected: The rows of its key that quarantines hold.
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
        table: The table.
        condition: The condition as it was typed.
        matches: How many rows fulfil it.
        key: The columns by which versions of a row are known; none where the rows have no key.
        by: Why these are the key.
        commits: The retained commits of main, by snapshot, and those that are named of the expired ones.
        expired: The commits that have expired, of which earlier metadata files still tell.
        rows: The first of the rows, explained.
        gone: Where no row fulfils the condition: those that did, newest first.
        rejected: Where no row fulfils it: those that quarantines hold.
        since: The time of the oldest commit that was looked at; None for a table without snapshots.
        before: What is before that: "nothing", "expired" or "not looked at".
        notes: What could not be looked at, and why.
    """

    table: str
    condition: str
    matches: int = 0
    key: tuple[str, ...] = ()
    by: str = ""
    commits: dict[int, Commit] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    rows: list[Explained] = field(default_factory=list)
    gone: list[Version] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    since: datetime | None = None
    before: str = "nothing"
    notes: list[str] = field(default_factory=list)


def why(table: Table, condition: str, view: View) -> Why:
    """Where the rows of a table that fulfil a condition come from.

    Args:
        table: The table.
        condition: Comparisons of its columns with values, as `parsed` takes them.
        view: Loads sources and quarantines, and knows the warehouses with the plans of pipelines.

    Raises:
        InputError: The condition does not parse, or names no column.
        RunError: A file cannot be read, or the table has deletes by equality.
    """
    wanted = parsed(condition, table.iceberg.schema(), table.name)
    with talking(table, "reading its files"):
        return _Question(table, condition, wanted, view).answer()


class _Question:
    """One question, and what is looked up for it."""

    def __init__(self, table: Table, text: str, wanted: BooleanExpression, view: View) -> None:
        self._table, self._wanted, self._view = table, wanted, view
        made = commits(table, view.places, view.checkpoints)
        self._main = [commit.snapshot for commit in reversed(made)]
        by_id = {commit.snapshot: commit for commit in made}
        metadata = table.iceberg.metadata
        ids = [raw.snapshot_id for raw in metadata.snapshots]
        self._known: dict[int, Node] = {id: node_of(metadata, id, by_id.get(id)) for id in ids}
        self._past = Past(table)
        self._answer = Why(table=table.name, condition=text, commits=by_id)

    def answer(self) -> Why:
        answer = self._answer
        if not self._main:
            return answer
        rows = Rows(self._table, self._wanted, self._untraced())
        files = Manifests(self._table, self._wanted).files(self._main[-1])
        answer.matches, first = rows.count(files, MOST)
        self._choose_key()
        if answer.matches:
            self._explain(first)
        else:
            self._say_where_it_went()
        return answer

    def _untraced(self) -> list[int]:
        return [node.id for node in self._known.values() if not node.traces]

    def _expired(self, sequence: int) -> Node | None:
        """The snapshot of a sequence number that has expired, by earlier metadata files."""
        found = self._past.holding(sequence)
        if found is None:
            return None
        metadata, id = found
        made = self._answer.commits[id] = commit_in(metadata, id, self._view.places, self._view.checkpoints)
        self._answer.expired.add(id)
        return node_of(metadata, id, made)

    def _walk(self, wanted: BooleanExpression) -> Walk:
        """The history of rows.

        Raises:
            TooMany: They are more than are kept.
        """
        rows = Rows(self._table, wanted, self._untraced())
        walk = Walk(self._known, self._main, Manifests(self._table, wanted), rows, self._expired)
        assert walk.start is not None  # main has snapshots
        self._answer.since = self._answer.commits[walk.start.id].committed
        self._answer.before = "not looked at" if walk.cut else "nothing" if walk.start.first else "expired"
        return walk

    # rows that are there

    def _explain(self, first: Sequence[Row]) -> None:
        answer, values = self._answer, [row.values for row in first]
        walk = self._history(values)
        by_key: dict[str, list[Version]] = {}
        for version in walk.versions if walk is not None and answer.key else ():
            by_key.setdefault(self._key_of(version.row), []).append(version)
        keys = [{name: row[name] for name in answer.key} for row in values]
        held, shown = self._rejected(keys), {row.place for row in first}
        for row, key, aside in zip(first, keys, held, strict=True):
            lost = Version(row, Origin(unknown="too many rows are equal to it"))
            version = walk.state.get(row.place, lost) if walk is not None else lost
            same = (one for one in by_key.get(self._key_of(row), ()) if one is not version)
            others = [one for one in same if one.ended is not None or one.row.place not in shown]
            answer.rows.append(
                Explained(
                    version=version,
                    reads=tuple(self._reads(version, key)),
                    earlier=tuple(reversed(others)),
                    replayed=tuple(self._replayed(version, key)),
                    rejected=tuple(aside),
                )
            )

    def _history(self, values: Sequence[Mapping[str, Any]]) -> Walk | None:
        """The history of some rows by their key; where that has too many, of the rows themselves."""
        answer = self._answer
        columns = comparable(self._table.iceberg.schema())
        for names in (list(answer.key), columns):
            if not names:
                continue
            try:
                return self._walk(having(values, names))
            except TooMany:
                if names == list(answer.key):
                    answer.notes.append(
                        f"too many rows have the same {', '.join(names)}: other versions are not shown."
                    )
                    answer.key, answer.by = (), ""
        return None

    def _key_of(self, row: Row) -> str:
        return repr([row.values[name] for name in self._answer.key])

    def _choose_key(self) -> None:
        """The columns by which versions of a row are known: a pipeline's keys, the table's own, or those asked for."""
        answer, schema = self._answer, self._table.iceberg.schema()
        named = {field.name.lower(): field.name for field in schema.fields}
        candidates: list[tuple[str, Sequence[str]]] = []
        try:
            for pipeline, record in records(self._table.iceberg.properties, self._table.name).items():
                keys = (record.upserts or {}).get("keys") or ()
                candidates.append((f"the keys of {pipeline}", keys))
        except HeliosError as error:
            answer.notes.append(error.what)
        ids = [str(schema.find_column_name(id)) for id in schema.identifier_field_ids]
        candidates.append(("the table's identifier fields", ids))
        asked = {tuple(values) for values in equal_to(self._wanted)}
        candidates.append(("the columns that the condition compares", asked.pop() if len(asked) == 1 else ()))
        single = comparable(schema)
        for by, names in candidates:
            found = tuple(named[name.lower()] for name in names if name.lower() in named)
            if found and len(found) == len(names) and set(found) <= set(single):
                answer.key, answer.by = found, by
                return

    # no row

    def _say_where_it_went(self) -> None:
        answer = self._answer
        try:
            walk = self._walk(self._wanted)
        except TooMany:
            answer.notes.append("too many rows fulfilled the condition earlier: ask for fewer of them.")
        else:
            answer.gone = [version for version in reversed(walk.versions) if version.ended is not None][:MOST]
        asked = equal_to(self._wanted)
        answer.rejected = newest(self._rejected(asked)) if asked else []

    # sources and quarantines

    def _reads(self, version: Version, key: Mapping[str, Any]) -> list[Read]:
        """What the commit of a row read."""
        if len(version.origin.snapshots) != 1:
            return []
        made = self._answer.commits.get(version.origin.snapshots[0])
        if made is None:
            return []
        # Of a quarantine the rows are told with what they were rejected for; a repair has no span of its own.
        key = {} if (made.pipeline or "").endswith(REPLAY) or made.repairs is not None else key
        declared = {one["name"]: one for one in made.plan.plan["sources"]} if made.plan is not None else {}
        return [
            Read(
                source=entry.source,
                text=text,
                entry=span.entry,
                again=self._again(entry.kind, span, key, declared.get(entry.source, {})),
            )
            for entry, text, span in zip(made.reads, made.read_texts, made.spans, strict=True)
        ]

    def _again(
        self, kind: SourceKind | None, span: Span, key: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Again | None:
        if kind is None or kind.again is None or not key:
            return None
        found = resolve_name(kind.again)(span, key, declared, self._view)
        assert isinstance(found, Again)
        return found

    def _replayed(self, version: Version, key: Mapping[str, Any]) -> list[Rejected]:
        """The row as the quarantine had it, of which a replay wrote it."""
        made = [self._answer.commits[id] for id in version.origin.snapshots if id in self._answer.commits]
        if len(made) != 1 or not key or not (made[0].pipeline or "").endswith(REPLAY):
            return []
        found: list[Rejected] = []
        for entry in made[0].reads:
            pipeline = str(made[0].pipeline).removesuffix(REPLAY)
            at = entry.position.snapshot if entry.position is not None else None
            found += self._held(entry.source, [pipeline], [key], at)[0]
        return found

    def _rejected(self, keys: Sequence[Mapping[str, Any]]) -> list[list[Rejected]]:
        """The rows of each key that the quarantines of the table's pipelines hold."""
        try:
            known = records(self._table.iceberg.properties, self._table.name)
        except HeliosError:
            known = {}  # it is told with the keys
        tables: dict[str, list[str]] = {}
        for pipeline, record in known.items():
            for name in record.quarantines:
                tables.setdefault(name, []).extend([pipeline, *record.formerly])
        each = [self._held(name, pipelines, keys, None) for name, pipelines in tables.items()]
        return [newest(found[index] for found in each) for index in range(len(keys))]

    def _held(
        self, name: str, pipelines: Sequence[str], keys: Sequence[Mapping[str, Any]], at: int | None
    ) -> list[list[Rejected]]:
        try:
            quarantine = self._view.load(name)
            if quarantine is None:
                raise HeliosError(f"{name} is of no declared catalog.")
            if at is not None and quarantine.iceberg.metadata.snapshot_by_id(at) is None:
                raise HeliosError(f"snapshot {at} of {name}, which a replay read, has expired.")
            return rejected(quarantine, pipelines, keys, at)
        except HeliosError as error:
            if error.what not in self._answer.notes:
                self._answer.notes.append(error.what)
            return [[] for _ in keys]
