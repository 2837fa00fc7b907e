"""The write modes of the conformance suite, and for each a reference in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

# the rows

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = "list[Row]"

COLUMNS = ("id", "part", "v", "n", "op")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("part", pa.string()), ("v", pa.int64()), ("n", pa.int64()), ("op", pa.string())]
)
SPARK_SCHEMA = "id bigint, part string, v bigint, n bigint, op string"

BATCHES: tuple[Rows, ...] = (
    [(1, "a", 10, 1, "u"), (2, "b", 20, 1, "u"), (3, "a", 30, 1, "u"), (4, "b", 40, 1, "u")],
    # an update, a new key, a delete, two deletes of a key that is not there yet
    [(3, "a", 31, 2, "u"), (5, "b", 50, 2, "u"), (2, "b", 0, 3, "d"), (8, "a", 0, 2, "d"), (8, "a", 0, 4, "d")],
    # older than the row that is there, older than a delete, than two, two of a key, the same row twice, a delete
    [
        *[(1, "a", 9, 0, "u"), (2, "b", 21, 2, "u"), (8, "a", 80, 1, "u"), (5, "b", 51, 4, "u"), (5, "b", 52, 3, "u")],
        *[(4, "b", 41, 3, "u"), (6, "a", 60, 3, "u"), (6, "a", 60, 3, "u"), (3, "a", 0, 4, "d")],
    ],
    # newer than a delete
    [(2, "b", 22, 5, "u"), (6, "a", 61, 4, "u"), (7, "b", 70, 4, "u")],
)
"""What the source gets, commit by commit; the first two are the scene, the third meets a failure, the last follows."""

FOREIGN: Rows = [(6, "a", 600, 3, "u"), (900, "b", 900, 99, "u")]
"""What another writer appends to the target by hand: a key, partition and part of batch 2, and one of no batch."""


# the references: the rows of the target after batches, and after what somebody else appends

Event: TypeAlias = "tuple[str, Rows]"
Reference: TypeAlias = "Callable[[list[Event]], Counter[Row]]"


def _appended(events: list[Event]) -> Counter[Row]:
    return Counter(row for _, rows in events for row in rows)


def _overwritten(events: list[Event]) -> Counter[Row]:
    """`overwrite("part = 'a'")` of a stream that is cut down to these rows."""
    state: Rows = []
    for kind, rows in events:
        if kind == "batch":
            state = [row for row in state if row[1] != "a"]
        state = state + [row for row in rows if kind != "batch" or row[1] == "a"]
    return Counter(state)


def _replaced(events: list[Event]) -> Counter[Row]:
    """`overwrite()`: all that the source holds, and what was appended since."""
    state: Rows = []
    source: Rows = []
    for kind, rows in events:
        if kind == "batch":
            source = source + rows
            state = source
        else:
            state = state + rows
    return Counter(state)


def _partitions(events: list[Event]) -> Counter[Row]:
    """`partition_by("n").overwrite_partitions()`."""
    state: Rows = []
    for kind, rows in events:
        if kind == "batch":
            touched = {row[3] for row in rows}
            state = [row for row in state if row[3] not in touched]
        state = state + rows
    return Counter(state)


def _upserted(events: list[Event]) -> Counter[Row]:
    """The newest row per key, where deletes are none."""
    return Counter(row for row in _newest(events) if row[4] != "d")


def _newest(events: list[Event]) -> Counter[Row]:
    """The newest row per key by `n`; a later one wins a tie."""
    newest: dict[int, Row] = {}
    for _, rows in events:
        for row in rows:
            known = newest.get(row[0])
            if known is None or row[3] >= known[3]:
                newest[row[0]] = row
    return Counter(newest.values())


def _without_order(events: list[Event]) -> Counter[Row]:
    return Counter(row[:3] for row in _upserted(events).elements())


def _with_order(events: list[Event]) -> Counter[Row]:
    return Counter(row[:4] for row in _upserted(events).elements())


def _versions(events: list[Event]) -> Counter[Row]:
    """Every row of a key from its `n` to the next one's, or to a delete."""
    found: dict[int, dict[int, Row]] = {}
    for _, rows in events:
        for row in rows:
            found.setdefault(row[0], {})[row[3]] = row
    versions: Rows = []
    for of_key in found.values():
        orders = sorted(of_key)
        ends = [*orders[1:], None]
        versions += [(*of_key[n][:3], n, end) for n, end in zip(orders, ends, strict=True) if of_key[n][4] != "d"]
    return Counter(versions)


def _deleted(events: list[Event]) -> Counter[Row]:
    state: Rows = []
    for kind, rows in events:
        keys = {row[0] for row in rows}
        state = [row for row in state if row[0] not in keys] if kind == "batch" else state + [row[:2] for row in rows]
    return Counter(state)


def _summed(events: list[Event]) -> Counter[Row]:
    state: Counter[int] = Counter()
    for _, rows in events:
        for row in rows:
            state[row[0]] += row[2]
    return Counter(state.items())


def _first(events: list[Event]) -> Counter[Row]:
    """`INSERTS`: the keys that are not there yet."""
    state: Rows = []
    for kind, rows in events:
        news = {row[0]: min(r[2] for r in rows if r[0] == row[0]) for row in rows}
        known = {row[0] for row in state} if kind == "batch" else set()
        state = state + [(key, v) for key, v in news.items() if key not in known]
    return Counter(state)


# the modes


@dataclass(frozen=True, kw_only=True)
class Case:
    """One write mode.

    Attributes:
        sink: Gives the sink its mode.
        reference: What the target then holds.
        columns: The columns of the target, in the reference's order.
        steps: A condition on the stream.
        followed: Whether the source is followed, or read whole by each run.
        made: SQL that makes the target by hand, of `{table}`.
        before: Rows that are in it before the first batch.
        by_hand: What another writer appends, as SQL on a row of the source's columns.
        parts: The tables that it writes: a name's ending, and which of the rows are there.
        branch: The branch that it writes.
        yields: Whether a conflict with another writer is tried again, or stops the run.
        audited: Whether batches become visible by being published.
        native: Whether the columnar engine must do it.
    """

    sink: Callable[[Any], Any]
    reference: Reference = _appended
    columns: tuple[str, ...] = COLUMNS
    steps: str = "true"
    followed: bool = True
    made: str = ""
    before: Rows = ()  # type: ignore[assignment]
    by_hand: tuple[str, ...] = COLUMNS
    parts: tuple[str, ...] = ("",)
    branch: str | None = None
    yields: bool = True
    audited: bool = False
    native: bool = False


MERGE = """
MERGE INTO target USING (SELECT id, sum(v) AS v FROM batch GROUP BY id) AS news ON target.id = news.id
WHEN MATCHED THEN UPDATE SET v = target.v + news.v
WHEN NOT MATCHED THEN INSERT (id, v) VALUES (news.id, news.v)
"""

INSERTS = """
MERGE INTO target USING (SELECT id, min(v) AS v FROM batch GROUP BY id) AS news ON target.id = news.id
WHEN NOT MATCHED THEN INSERT (id, v) VALUES (news.id, news.v)
"""

UPSERT = {"order_by": "n", "delete_when": "op = 'd'"}

CASES: dict[str, Case] = {
    "append": Case(sink=lambda s: s.append()),
    "overwrite": Case(sink=lambda s: s.overwrite(), reference=_replaced, followed=False, yields=False),
    "overwrite-filter": Case(
        sink=lambda s: s.overwrite("part = 'a'"), reference=_overwritten, steps="part = 'a'", yields=False
    ),
    "overwrite-partitions": Case(
        sink=lambda s: s.partition_by("n").overwrite_partitions(), reference=_partitions, yields=False
    ),
    "upsert": Case(
        sink=lambda s: s.upsert("id", store_order=False, **UPSERT),
        reference=_without_order,
        columns=("id", "part", "v"),
        by_hand=("id", "part", "v"),
    ),
    "upsert-stored-order": Case(
        sink=lambda s: s.upsert("id", **UPSERT),
        reference=_with_order,
        columns=("id", "part", "v", "n"),
        # version 2, as tables of before: deletes are files; those that Helios makes for upserts have deletion vectors
        made="CREATE TABLE {table} (id bigint, part string, v bigint, n bigint) USING iceberg "
        "TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')",
        by_hand=("id", "part", "v", "n"),
    ),
    "upsert-native": Case(sink=lambda s: s.upsert("id", order_by="n"), reference=_newest, native=True),
    "upsert-history": Case(
        sink=lambda s: s.upsert("id", history=True, **UPSERT),
        reference=_versions,
        columns=("id", "part", "v", "valid_from", "valid_to"),
        by_hand=("id", "part", "v", "n", "n", "CAST(NULL AS bigint)"),
    ),
    "delete": Case(
        sink=lambda s: s.delete("id"),
        reference=_deleted,
        columns=("id", "part"),
        made="CREATE TABLE {table} (id bigint, part string) USING iceberg "
        "TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')",
        before=[(i, part) for i in range(1, 10) for part in "ab"],
        by_hand=("id", "part"),
    ),
    "merge-sql": Case(
        sink=lambda s: s.merge_sql(MERGE),
        reference=_summed,
        columns=("id", "v"),
        made="CREATE TABLE {table} (id bigint, v bigint) USING iceberg "
        "TBLPROPERTIES ('write.merge.mode' = 'copy-on-write')",
        by_hand=("id", "v"),
    ),
    "merge-sql-inserts": Case(
        sink=lambda s: s.merge_sql(INSERTS),
        reference=_first,
        columns=("id", "v"),
        made="CREATE TABLE {table} (id bigint, v bigint) USING iceberg",
        by_hand=("id", "v"),
    ),
    "branch": Case(
        sink=lambda s: s.branch("aside"),
        made="CREATE TABLE {table} (id bigint, part string, v bigint, n bigint, op string) USING iceberg",
        before=[(800, "b", 8, 8, "u")],
        branch="aside",
    ),
    "route": Case(sink=lambda s: s.route(by="part"), parts=("_a", "_b")),
    "audit": Case(sink=lambda s: s.audit({"whole": "count(*) = count(id)"}).publish(), audited=True),
}
