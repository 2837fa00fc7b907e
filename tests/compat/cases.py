"""The pipelines whose states an older Helios leaves and the one under test continues from, and what they must hold.

Both versions import this file: the older one through `make_states.py`, the new one through the tests. So it uses only
what both have, which is the public face of Helios.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner
from pyiceberg.table import StaticTable

from helios import (
    Catalog,
    Files,
    Iceberg,
    Pipeline,
    aggregate,
    dedupe,
    expect,
    join,
    union,
    watermark,
    window,
    with_columns,
)
from helios.cli import main

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = "list[Row]"
Fed: TypeAlias = "Sequence[Sequence[int]]"
"""What each run found new in its sources, as numbers of `BATCHES`."""

COLUMNS = ("id", "part", "v", "n", "op")
SCHEMA = pa.schema(
    [("id", pa.int64()), ("part", pa.string()), ("v", pa.int64()), ("n", pa.int64()), ("op", pa.string())]
)

BATCHES: tuple[Rows, ...] = (
    [(1, "a", 10, 1, "u"), (2, "b", 20, 1, "u"), (3, "a", 30, 1, "u"), (4, "b", 40, 1, "u")],
    # an update, a new key, a delete, a delete of a key that was never there
    [(3, "a", 31, 2, "u"), (5, "b", 50, 2, "u"), (2, "b", 0, 3, "d"), (8, "a", 0, 4, "d")],
    # older than what is there, older than a delete, than one of a key that never was, newer, a new part, a delete
    [
        *[(1, "a", 9, 0, "u"), (2, "b", 21, 2, "u"), (8, "a", 80, 1, "u"), (5, "b", 51, 4, "u")],
        *[(6, "c", 60, 3, "u"), (4, "b", 0, 3, "d")],
    ],
    # newer than a delete, older than the last batch's delete, than one before it, new keys, a delete
    [
        *[(2, "b", 22, 5, "u"), (4, "b", 42, 2, "u"), (8, "a", 81, 3, "u")],
        *[(7, "a", 70, 4, "u"), (9, "c", 90, 5, "u"), (1, "a", 0, 6, "d")],
    ],
)

MINUTES: tuple[Rows, ...] = (
    [(1, "a", 1, 5, "u"), (2, "b", 2, 50, "u")],
    [(3, "a", 3, 40, "u"), (4, "a", 4, 80, "u")],
    [(5, "a", 5, 30, "u"), (6, "b", 6, 90, "u"), (7, "b", 7, 150, "u")],  # the first is of a window that has ended
    [(8, "a", 8, 170, "u"), (9, "b", 9, 215, "u")],
)
"""Of the case after a watermark: `n` is the minute at which a row lies."""


class Lake:
    """A folder with a catalog, its tables, the checkpoints beside them, and files that arrive."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.inbox = folder / "inbox"
        self.database = folder / ".helios" / "catalog.db"
        self.checkpoints = folder / ".helios" / "warehouse" / "_helios" / "checkpoints"
        self.catalog = Catalog.local(path=folder / ".helios")

    def source(self, table: str) -> Any:
        return Iceberg.source(table, catalog=self.catalog)

    def sink(self, table: str) -> Any:
        return Iceberg.sink(table, catalog=self.catalog)

    def append(self, table: str, rows: Rows, partition_by: Sequence[str] = ()) -> None:
        """One commit to a table, which is made when it is not there; no rows are no commit."""
        if not self.catalog.exists(table):
            self.catalog.create_table(table, SCHEMA, partition_by=partition_by)
        if rows:
            self.catalog.load(table).iceberg.append(arrow(rows))

    def tables(self) -> dict[str, StaticTable]:
        """The tables, as their newest metadata files have them: read past all that Helios may have cached."""
        with closing(sqlite3.connect(self.database)) as db:
            found = db.execute("SELECT table_namespace, table_name, metadata_location FROM iceberg_tables").fetchall()
        return {f"{space}.{name}": StaticTable.from_metadata(at) for space, name, at in sorted(found)}

    def rows(self, table: str, columns: Sequence[str]) -> Counter[Row]:
        found = self.tables().get(table)
        if found is None:
            return Counter()
        read = found.scan(selected_fields=tuple(columns)).to_arrow()
        return Counter(zip(*(read[name].to_pylist() for name in columns), strict=True))

    def told(self, pipeline: Pipeline) -> dict[str, Any]:
        """What is told of a pipeline without a JVM: its status, and what its plan makes of its checkpoint."""
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            status = CliRunner().invoke(main, ["status", "--json"], catch_exceptions=False)
        finally:
            os.chdir(before)
        assert status.exit_code == 0, status.output
        planned = json.loads(pipeline.plan().to_json())
        sources = [{key: source.get(key) for key in ("kind", "name", "backlog")} for source in planned["sources"]]
        return {
            "status": [{**one, "seconds": None} for one in json.loads(status.stdout)],
            "plan": {**{key: planned[key] for key in ("pipeline", "path", "checkpoint")}, "sources": sources},
        }


def arrow(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], schema=SCHEMA)


# what the sources get


def feed_table(lake: Lake, number: int) -> None:
    lake.append("a.s", BATCHES[number])


def feed_minutes(lake: Lake, number: int) -> None:
    lake.append("a.s", MINUTES[number])


def feed_parts(lake: Lake, number: int) -> None:
    """One commit of a file per part."""
    lake.append("a.s", BATCHES[number], partition_by=("part",))


def feed_folder(lake: Lake, number: int) -> None:
    lake.inbox.mkdir(exist_ok=True)
    pq.write_table(arrow(BATCHES[number]), lake.inbox / f"{number}.parquet")


def feed_two(lake: Lake, number: int) -> None:
    """Rows of part a go into one table, the others into a second one, which gets nothing with batch 1."""
    mine = [row for row in BATCHES[number] if row[1] == "a" or number == 1]
    lake.append("a.s", mine)
    lake.append("a.s2", [row for row in BATCHES[number] if row not in mine])


def feed_table_and_folder(lake: Lake, number: int) -> None:
    """Even batches go into the table, odd ones into the folder, which is empty at first."""
    lake.inbox.mkdir(exist_ok=True)
    (feed_folder if number % 2 else feed_table)(lake, number)


def feed_changes(lake: Lake, number: int) -> None:
    """Appends, and rows that are deleted out of files."""
    lake.append("a.s", BATCHES[number])
    gone = DELETED_IDS[number]
    if gone is not None:
        lake.catalog.load("a.s").iceberg.delete(f"id = {gone}")


DELETED_IDS = (None, 3, 5, 1)
"""The id whose rows are deleted from a table after each batch."""


def feed_with_names(lake: Lake, number: int) -> None:
    """The table that is joined is replaced before the rows come: each part's name then tells the batch."""
    names = pa.table({"part": ["a", "b", "c"], "name": [f"{part}{number}" for part in "abc"]})
    feed_table(lake, number)
    if not lake.catalog.exists("a.names"):
        lake.catalog.create_table("a.names", names.schema)
    lake.catalog.load("a.names").iceberg.overwrite(names)


# what the targets then hold


def appended(fed: Fed) -> Counter[Row]:
    return Counter(row for numbers in fed for number in numbers for row in BATCHES[number])


def whole_each_time(fed: Fed) -> Counter[Row]:
    """A batch pipeline that appends: every run adds all that the source holds by then."""
    return Counter(row for run in range(len(fed)) for row in appended(fed[: run + 1]).elements())


def newest(fed: Fed) -> Counter[Row]:
    """The newest row of each key by `n`, unless that deletes it."""
    found: dict[int, Row] = {}
    for row in appended(fed):
        if row[0] not in found or row[3] > found[row[0]][3]:
            found[row[0]] = row
    return Counter(row for row in found.values() if row[4] != "d")


def newest_without_order(fed: Fed) -> Counter[Row]:
    return Counter(row[:3] for row in newest(fed))


def versions(fed: Fed) -> Counter[Row]:
    """Every row of a key, from its `n` to that of the next one or of a delete."""
    found: list[Row] = []
    for key in {row[0] for row in appended(fed)}:
        mine = sorted((row for row in appended(fed) if row[0] == key), key=lambda row: int(row[3]))
        ends = [*(row[3] for row in mine[1:]), None]
        found += [(*row[:3], row[3], end) for row, end in zip(mine, ends, strict=True) if row[4] != "d"]
    return Counter(found)


def of_part(part: str, rows: Callable[[Fed], Counter[Row]]) -> Callable[[Fed], Counter[Row]]:
    return lambda fed: Counter(row for row in rows(fed).elements() if row[1] == part)


def positive(fed: Fed) -> Counter[Row]:
    return Counter(row for row in appended(fed).elements() if row[2] > 0)


def rejected(fed: Fed) -> Counter[Row]:
    """What a quarantine holds: the number of the batch, the row and why."""
    step, reason = "expect(positive=v > 0, on_fail=quarantine)", "positive (v > 0)"
    return Counter(
        (run, json.dumps(dict(zip(COLUMNS, row, strict=True)), separators=(",", ":")), step, reason)
        for run, numbers in enumerate(fed)
        for row in appended([numbers]).elements()
        if row[2] <= 0
    )


def totals(fed: Fed) -> Counter[Row]:
    return _totals(appended(fed))


def ended_windows(fed: Fed) -> Counter[Row]:
    """The hours that end before the newest minute less ten; a row of an hour that has ended comes too late."""
    open_: Counter[tuple[int, str]] = Counter()
    passed, found = float("-inf"), Counter[Row]()
    for numbers in fed:
        rows = [row for number in numbers for row in MINUTES[number]]
        for _, part, v, n, _ in rows:
            if (n // 60 + 1) * 60 > passed:
                open_[n // 60, part] += v
        passed = max(passed, max(row[3] for row in rows) - 10)
        found += Counter((part, v) for (hour, part), v in open_.items() if (hour + 1) * 60 <= passed)
        open_ = Counter({key: v for key, v in open_.items() if (key[0] + 1) * 60 > passed})
    return found


def passed_by_the_watermark(fed: Fed) -> Counter[Row]:
    """The rows that are not behind the watermark when their run begins, once it has passed them; no two have one id."""
    passed, waiting, found = float("-inf"), list[Row](), Counter[Row]()
    for numbers in fed:
        rows = [row for number in numbers for row in MINUTES[number]]
        waiting += [row for row in rows if row[3] > passed]
        passed = max(passed, max(row[3] for row in rows) - 10)
        found += Counter((row[0], row[1]) for row in waiting if row[3] <= passed)
        waiting = [row for row in waiting if row[3] > passed]
    return found


def changed(fed: Fed) -> Counter[Row]:
    """Every row in, and every row that is deleted out again."""
    found: Counter[Row] = Counter()
    state: Rows = []
    for number in (number for numbers in fed for number in numbers):
        found += Counter((*row, "INSERT") for row in BATCHES[number])
        state += BATCHES[number]
        found += Counter((*row, "DELETE") for row in state if row[0] == DELETED_IDS[number])
        state = [row for row in state if row[0] != DELETED_IDS[number]]
    return found


def totals_of_what_is_left(fed: Fed) -> Counter[Row]:
    found = changed(fed)
    gone = Counter({row[:-1]: count for row, count in found.items() if row[-1] == "DELETE"})
    return _totals(Counter({row[:-1]: count for row, count in found.items() if row[-1] == "INSERT"}) - gone)


def _totals(rows: Counter[Row]) -> Counter[Row]:
    parts = {row[1] for row in rows}
    return Counter(
        (part, sum(row[2] for row in rows.elements() if row[1] == part), sum(row[1] == part for row in rows.elements()))
        for part in parts
    )


def named(fed: Fed) -> Counter[Row]:
    """Rows with the name that their part had when their batch was first planned."""
    return Counter((*row, f"{row[1]}{numbers[-1]}") for numbers in fed for number in numbers for row in BATCHES[number])


# the pipelines


@dataclass(frozen=True)
class Target:
    """A table that a pipeline writes, and which rows of these columns it holds after runs."""

    table: str
    columns: tuple[str, ...]
    reference: Callable[[Fed], Counter[Row]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pipeline, and how far the older Helios takes it.

    Attributes:
        pipeline: Declares it.
        targets: What it writes.
        feed: Gives its sources a batch.
        fed: What its sources get before each of the older version's runs.
        commits: The commits to its tables in the last of these runs; between any two of them an image is kept.
        followed: Whether its sources are followed; otherwise each run reads them whole.
        only: The images from which the new version goes on; all by default.
        stored: Whether what both versions store is compared; of variants it is not.
    """

    pipeline: Callable[[Lake], Pipeline]
    targets: tuple[Target, ...]
    feed: Callable[[Lake, int], None] = feed_table
    fed: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,))
    commits: int = 1
    followed: bool = True
    only: tuple[str, ...] = ()
    stored: bool = True

    def images(self) -> tuple[str, ...]:
        """The states that are kept of it, in their order."""
        begun = (CLEAN,) if len(self.fed) > 1 else ()
        between = (f"{done} of {self.commits}" for done in range(1, self.commits))
        return (*begun, PLANNED, *between, LANDED)

    def runs(self, image: str) -> Fed:
        """What each run has found new in its sources, when one more has gone on from an image and batch 3."""
        if not self.followed:
            return self.fed  # nothing new comes: the run that follows finds identical inputs
        *before, last = self.fed
        return (*before, (*last, 3)) if image == CLEAN else (*self.fed, (3,))


FRESH = "fresh"
"""The sources have their first rows, and the pipeline has never run."""
CLEAN = "clean"
"""The last run but one has ended, and the sources have got more since."""
PLANNED = "planned"
"""The last run stands before its first commit: the batch is in Spark's log of offsets, and in no table."""
LANDED = "landed"
"""The last run stands behind its last commit, which Spark's log of commits does not have yet."""

UPSERT = {"order_by": "n", "delete_when": "op = 'd'"}
T = "a.t"


def _append(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1) >> lake.sink(T)


def _bounded(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1, max_files=1) >> lake.sink(T)


def _bounded_state(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1, max_files=3) >> lake.sink(T)


def _upsert(lake: Lake) -> Pipeline:
    return (lake.source("a.s").incremental(poll=1) >> lake.sink(T).upsert("id", **UPSERT)).named("newest_by_n")


def _history(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1) >> lake.sink(T).upsert("id", history=True, **UPSERT)


def _routed(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1) >> lake.sink(T).route(by="part")


def _routed_upsert(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1) >> lake.sink(T).upsert("id", **UPSERT).route(by="part")


def _audited(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1) >> lake.sink(T).audit({"ids": "count(*) = count(id)"}).publish()


def _windowed(lake: Lake) -> Pipeline:
    return (
        lake.source("a.s").incremental(poll=1)
        >> with_columns(ts="timestamp_seconds(n * 60)")
        >> watermark("ts", "10 minutes")
        >> window("ts", "1 hour").group_by("part").agg(total="sum(v)")
        >> lake.sink(T)
    )


def _deduplicated(lake: Lake) -> Pipeline:
    return (
        lake.source("a.s").incremental(poll=1)
        >> with_columns(ts="timestamp_seconds(n * 60)")
        >> watermark("ts", "10 minutes")
        >> dedupe("id", within="10 minutes")
        >> lake.sink(T)
    )


def _aggregated(lake: Lake) -> Pipeline:
    totals = aggregate("part", total="sum(v)", rows="count(*)")
    return lake.source("a.s").incremental(poll=1) >> totals >> lake.sink(T).upsert("part")


def _folder(lake: Lake) -> Pipeline:
    return Files.source(str(lake.inbox), "parquet", schema=_DDL).incremental(poll=1) >> lake.sink(T)


_DDL = "id bigint, part string, v bigint, n bigint, op string"


def _changes(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1).changes(keys=["id", "n"]) >> lake.sink(T)


def _view(lake: Lake) -> Pipeline:
    totals = aggregate("part", total="sum(v)", rows="count(*)")
    return lake.source("a.s").incremental(poll=1).changes(keys=["id", "n"]) >> totals >> lake.sink(T).upsert("part")


def _joined(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1) >> join(lake.source("a.names"), on="part", how="left") >> lake.sink(T)


def _quarantined(lake: Lake) -> Pipeline:
    kept = expect({"positive": "v > 0"}, on_fail="quarantine")
    return lake.source("a.s").incremental(poll=1) >> kept >> lake.sink(T).quarantine("a.bad")


def _two(lake: Lake) -> Pipeline:
    return lake.source("a.s").incremental(poll=1) >> union(lake.source("a.s2").incremental(poll=1)) >> lake.sink(T)


def _table_and_folder(lake: Lake) -> Pipeline:
    files = Files.source(str(lake.inbox), "parquet", schema=_DDL).incremental(poll=1)
    return (lake.source("a.s").incremental(poll=1) >> union(files) >> lake.sink(T)).named("both")


def _batch(lake: Lake) -> Pipeline:
    return lake.source("a.s") >> lake.sink(T)


ALL = (Target(T, COLUMNS, appended),)
TOTALS = ("part", "total", "rows")

CASES: dict[str, Case] = {
    "append": Case(pipeline=_append, targets=ALL),
    # batches of single files, that end within a commit
    "bounded": Case(pipeline=_bounded, targets=ALL, feed=feed_parts, commits=3, only=(PLANNED, "1 of 3")),
    # batches that end within the state with which the pipeline begins
    "bounded-state": Case(
        pipeline=_bounded_state,
        targets=ALL,
        feed=feed_parts,
        fed=((0, 1, 2),),
        commits=3,
        only=(PLANNED, "1 of 3"),
        stored=False,
    ),
    "upsert": Case(
        pipeline=_upsert,
        targets=(Target(T, ("id", "part", "v"), newest_without_order),),
        only=(CLEAN, PLANNED, LANDED),
    ),
    "history": Case(
        pipeline=_history,
        targets=(Target(T, ("id", "part", "v", "valid_from", "valid_to"), versions),),
        only=(PLANNED, LANDED),
        stored=False,
    ),
    "routed": Case(
        pipeline=_routed,
        targets=tuple(Target(f"{T}_{part}", COLUMNS, of_part(part, appended)) for part in "abc"),
        commits=3,
        only=(CLEAN, PLANNED, "1 of 3", LANDED),
    ),
    "routed-upsert": Case(
        pipeline=_routed_upsert,
        targets=tuple(
            Target(f"{T}_{part}", ("id", "part", "v"), of_part(part, newest_without_order)) for part in "abc"
        ),
        commits=2,  # part a has late rows alone
        only=(PLANNED, "1 of 2"),
        stored=False,
    ),
    "audited": Case(pipeline=_audited, targets=ALL, commits=2),
    "windowed": Case(pipeline=_windowed, targets=(Target(T, ("part", "total"), ended_windows),), feed=feed_minutes),
    "deduplicated": Case(
        pipeline=_deduplicated,
        targets=(Target(T, ("id", "part"), passed_by_the_watermark),),
        feed=feed_minutes,
        only=(CLEAN, PLANNED, LANDED),
    ),
    "aggregated": Case(pipeline=_aggregated, targets=(Target(T, TOTALS, totals),)),
    "folder": Case(pipeline=_folder, targets=ALL, feed=feed_folder),
    "changes": Case(pipeline=_changes, targets=(Target(T, (*COLUMNS, "_change_type"), changed),), feed=feed_changes),
    "view": Case(pipeline=_view, targets=(Target(T, TOTALS, totals_of_what_is_left),), feed=feed_changes),
    "joined": Case(pipeline=_joined, targets=(Target(T, (*COLUMNS, "name"), named),), feed=feed_with_names),
    "quarantined": Case(
        pipeline=_quarantined,
        targets=(Target(T, COLUMNS, positive), Target("a.bad", ("batch", "payload", "step", "reason"), rejected)),
        commits=2,
    ),
    "two": Case(pipeline=_two, targets=ALL, feed=feed_two),
    "table-and-folder": Case(pipeline=_table_and_folder, targets=ALL, feed=feed_table_and_folder),
    "batch": Case(pipeline=_batch, targets=(Target(T, COLUMNS, whole_each_time),), followed=False),
}
