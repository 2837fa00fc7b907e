"""Row-level changes of Iceberg tables, read with `helios.sources.iceberg.spark.changelog`."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from helios.catalog.names import TableName
from helios.errors import InputError, LedgerError
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.spark.changelog import read_changes, state_as_changes
from helios.sources.iceberg.spark.snapshot import read_state, source_table

pytestmark = pytest.mark.promise("changes")

MODES = ("delete", "update", "merge")


def plan_of(world: Any, table: str, branch: str | None = None) -> ReadPlan:
    namespace, name = table.split(".")
    return ReadPlan(source=world.source(table), table=TableName(world.catalog, (namespace,), name), branch=branch)


def make(world: Any, version: int, mode: str, columns: str = "id BIGINT, v STRING", more: str = "") -> ReadPlan:
    """A table `db.t` of a format and a way of storing changes."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.db")
    modes = ", ".join(f"'write.{do}.mode'='{mode}'" for do in MODES)
    properties = f"TBLPROPERTIES ('format-version'='{version}', {modes})"
    world.sql(f"CREATE TABLE local.db.t ({columns}) USING iceberg {more} {properties}")
    return plan_of(world, "db.t")


def head(world: Any, read: ReadPlan) -> int:
    return int(source_table(world.spark, read).currentSnapshot().snapshotId())


def told(df: DataFrame) -> Counter[tuple[Any, ...]]:
    """Kinds and rows, as a multiset, without their commits."""
    return Counter((row["_change_type"], *row[:-3]) for row in df.collect())


def after(world: Any, read: ReadPlan, *commands: str, keys: tuple[str, ...] = ()) -> list[Counter[tuple[Any, ...]]]:
    """The changes of each command, all read as one range; every command makes one commit."""
    since = head(world, read)
    ids = []
    for command in commands:
        world.sql(command)
        ids.append(head(world, read))
    assert len(set(ids)) == len(commands)
    rows = read_changes(world.spark, read, since, ids[-1], keys).collect()
    assert {row["_commit_snapshot_id"] for row in rows} <= set(ids)
    table = source_table(world.spark, read)
    for row in rows:
        made = table.snapshot(row["_commit_snapshot_id"])
        assert row["_change_ordinal"] == (made.sequenceNumber() or made.timestampMillis() - (1 << 53))
    return [Counter((r["_change_type"], *r[:-3]) for r in rows if r["_commit_snapshot_id"] == id) for id in ids]


FOUR = "INSERT INTO local.db.t VALUES (1, 'a'), (2, 'b'), (2, 'b'), (NULL, 'n')"
COMPACT = "CALL local.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))"


@pytest.mark.parametrize(("kind", "seed"), [("cow2", 2), ("mor2", 3), ("cow3", 4), ("mor3", 5)])
@pytest.mark.cases(short="cow2-2", slow=("mor3-5", "mor2-3"))
def test_replayed_changes_equal_the_table(world: Any, command: Any, kind: str, seed: int) -> None:
    given = Namespace(commits=20, kinds=[kind], seed=seed, each=True)
    assert command("changes").compare(world.catalog, given, world.spark) == 0


@pytest.mark.parametrize("version", [1, 2])
def test_copy_on_write_tells_deletes_and_inserts(world: Any, version: int) -> None:
    read = make(world, version, "copy-on-write")
    world.sql(FOUR)
    insert, update, delete, compact, all_gone = after(
        world,
        read,
        "INSERT INTO local.db.t VALUES (3, 'c'), (3, 'c')",
        "UPDATE local.db.t SET v = 'B' WHERE id = 1",
        "DELETE FROM local.db.t WHERE id = 2",
        COMPACT,
        "TRUNCATE TABLE local.db.t",
    )
    assert insert == {("INSERT", 3, "c"): 2}
    assert update == {("DELETE", 1, "a"): 1, ("INSERT", 1, "B"): 1}
    assert delete == {("DELETE", 2, "b"): 2}
    assert compact == {}
    assert all_gone == {("DELETE", 1, "B"): 1, ("DELETE", 3, "c"): 2, ("DELETE", None, "n"): 1}


@pytest.mark.parametrize(
    ("version", "mode"), [(1, "copy-on-write"), (2, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read")]
)
@pytest.mark.short
def test_keys_pair_updates(world: Any, version: int, mode: str) -> None:
    read = make(world, version, mode)
    world.sql(FOUR)
    update, null, twice, moved, gone = after(
        world,
        read,
        "UPDATE local.db.t SET v = 'A' WHERE id = 1",
        "UPDATE local.db.t SET v = 'N' WHERE id IS NULL",
        "UPDATE local.db.t SET v = 'B' WHERE id = 2",
        "UPDATE local.db.t SET id = 5 WHERE id = 1",
        "DELETE FROM local.db.t WHERE id = 2",
        keys=("id",),
    )
    assert update == {("UPDATE_BEFORE", 1, "a"): 1, ("UPDATE_AFTER", 1, "A"): 1}
    assert null == {("UPDATE_BEFORE", None, "n"): 1, ("UPDATE_AFTER", None, "N"): 1}
    assert twice == {("DELETE", 2, "b"): 2, ("INSERT", 2, "B"): 2}
    assert moved == {("DELETE", 1, "A"): 1, ("INSERT", 5, "A"): 1}
    assert gone == {("DELETE", 2, "B"): 2}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.cases(short="merge-on-read")
def test_lineage_pairs_updates(world: Any, mode: str) -> None:
    read = make(world, 3, mode)
    world.sql(FOUR)
    moved, twice, merged, compact, later = after(
        world,
        read,
        "UPDATE local.db.t SET id = 5 WHERE id = 1",
        "UPDATE local.db.t SET v = 'B' WHERE id = 2",
        "MERGE INTO local.db.t t USING (SELECT * FROM VALUES (5, 'x'), (6, 'y') AS s(id, v)) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET t.v = s.v WHEN NOT MATCHED THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND t.id IS NULL THEN DELETE",
        COMPACT,
        "UPDATE local.db.t SET v = 'z' WHERE id = 6",
    )
    assert moved == {("UPDATE_BEFORE", 1, "a"): 1, ("UPDATE_AFTER", 5, "a"): 1}
    assert twice == {("UPDATE_BEFORE", 2, "b"): 2, ("UPDATE_AFTER", 2, "B"): 2}
    assert merged == {
        ("UPDATE_BEFORE", 5, "a"): 1,
        ("UPDATE_AFTER", 5, "x"): 1,
        ("INSERT", 6, "y"): 1,
        ("DELETE", None, "n"): 1,
    }
    assert compact == {}
    assert later == {("UPDATE_BEFORE", 6, "y"): 1, ("UPDATE_AFTER", 6, "z"): 1}


def test_a_rewrite_without_lineage_carries_rows_over(world: Any) -> None:
    """Rows that are written again as new ones have other ids."""
    read = make(world, 3, "copy-on-write")
    world.sql(FOUR)
    (rewritten,) = after(world, read, "INSERT OVERWRITE local.db.t SELECT id, if(id = 1, 'A', v) FROM local.db.t")
    assert rewritten == {("DELETE", 1, "a"): 1, ("INSERT", 1, "A"): 1}


def test_values_are_compared_exactly(world: Any) -> None:
    struct = "STRUCT<`a.b`: DOUBLE, l: ARRAY<MAP<INT, STRING>>>"
    columns = f"id BIGINT, x DOUBLE, f FLOAT, m MAP<STRING, DOUBLE>, s {struct}, b BINARY"
    read = make(world, 2, "copy-on-write", columns)
    nan, one = "double('NaN')", "map('k', 1D, 'j', 2D)"
    world.sql(
        "INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES "
        f"(1, 0D, float('NaN'), {one}, struct(0D, array(map(1, 'x'), NULL)), X'00'), "
        f"(1, -0D, float(-0D), map('j', 2D, 'k', 1D), struct(-0D, array()), X''), "
        f"(1, {nan}, NULL, map('k', {nan}), NULL, NULL), "
        f"(1, NULL, 1.5F, NULL, struct(NULL, NULL), X'FF'), "
        f"(2, {nan}, NULL, map('k', 0D), NULL, NULL)"
    )
    since = head(world, read)
    before = Counter(map(repr, world.spark.table("local.db.t").collect()))
    world.sql("UPDATE local.db.t SET x = -x WHERE id = 1 AND x = 0")
    world.sql("UPDATE local.db.t SET m = map('k', -0D) WHERE id = 2")
    rows = read_changes(world.spark, read, since, head(world, read), ()).collect()
    now = Counter(map(repr, world.spark.table("local.db.t").collect()))
    names = rows[0].__fields__[:-3]
    shown = {
        kind: Counter(repr(_row(r, names)) for r in rows if r["_change_type"] == kind) for kind in ("INSERT", "DELETE")
    }
    assert shown["DELETE"].total() == 3
    assert shown["INSERT"].total() == 3
    assert not shown["DELETE"] - before
    assert before - shown["DELETE"] + shown["INSERT"] == now


def _row(row: Any, names: list[str]) -> Any:
    from pyspark.sql import Row

    return Row(*names)(*row[: len(names)])


@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (3, "merge-on-read")])
def test_columns_are_those_of_now(world: Any, version: int, mode: str) -> None:
    read = make(world, version, mode, "id INT, old STRING, gone STRING")
    world.sql("INSERT INTO local.db.t VALUES (1, 'a', 'g'), (2, 'b', 'g')")
    since = head(world, read)
    world.sql("DELETE FROM local.db.t WHERE id = 1")
    for change in (
        "RENAME COLUMN old TO new",
        "DROP COLUMN gone",
        "ADD COLUMN more DOUBLE",
        "ADD COLUMN gone INT",
        "ALTER COLUMN id TYPE BIGINT",
    ):
        world.sql(f"ALTER TABLE local.db.t {change}")
    world.sql("UPDATE local.db.t SET more = 1.5")
    df = read_changes(world.spark, read, since, head(world, read), ("ID",))
    assert df.dtypes == [
        ("id", "bigint"),
        ("new", "string"),
        ("more", "double"),
        ("gone", "int"),
        ("_change_type", "string"),
        ("_change_ordinal", "bigint"),
        ("_commit_snapshot_id", "bigint"),
    ]
    assert told(df) == {
        ("DELETE", 1, "a", None, None): 1,
        ("UPDATE_BEFORE", 2, "b", None, None): 1,
        ("UPDATE_AFTER", 2, "b", 1.5, None): 1,
    }


def test_a_changed_partitioning_and_whole_partitions(world: Any) -> None:
    read = make(world, 2, "merge-on-read", more="PARTITIONED BY (v)")
    world.sql("INSERT INTO local.db.t VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    since = head(world, read)
    world.sql("ALTER TABLE local.db.t ADD PARTITION FIELD bucket(4, id)")
    world.sql("INSERT INTO local.db.t VALUES (4, 'a')")
    world.sql("UPDATE local.db.t SET v = 'c' WHERE id IN (1, 4)")
    world.sql("DELETE FROM local.db.t WHERE v = 'b'")
    world.sql("INSERT OVERWRITE local.db.t SELECT id + 10, v FROM local.db.t WHERE v = 'c'")
    df = read_changes(world.spark, read, since, head(world, read), ("id",))
    assert told(df) == {
        ("INSERT", 4, "a"): 1,
        ("UPDATE_BEFORE", 1, "a"): 1,
        ("UPDATE_AFTER", 1, "c"): 1,
        ("UPDATE_BEFORE", 4, "a"): 1,
        ("UPDATE_AFTER", 4, "c"): 1,
        ("DELETE", 3, "b"): 1,
        ("DELETE", 1, "c"): 1,
        ("DELETE", 4, "c"): 1,
        ("DELETE", 2, "a"): 1,
        ("INSERT", 11, "c"): 1,
        ("INSERT", 14, "c"): 1,
    }


def test_deletes_of_a_whole_partition_apply_to_every_file(world: Any) -> None:
    read = make(world, 2, "merge-on-read", more="PARTITIONED BY (v)")
    world.sql("ALTER TABLE local.db.t SET TBLPROPERTIES ('write.delete.granularity'='partition')")
    for id in range(4):
        world.sql(f"INSERT INTO local.db.t VALUES ({id}, 'a'), ({id}, 'b'), ({id + 10}, 'a')")
    first, second, added, third = after(
        world,
        read,
        "DELETE FROM local.db.t WHERE id IN (0, 1) AND v = 'a'",
        "DELETE FROM local.db.t WHERE id IN (2, 10)",
        "INSERT INTO local.db.t VALUES (1, 'a'), (20, 'a')",
        "DELETE FROM local.db.t WHERE id IN (1, 12)",
        keys=("id", "v"),
    )
    assert first == {("DELETE", 0, "a"): 1, ("DELETE", 1, "a"): 1}
    assert second == {("DELETE", 2, "a"): 1, ("DELETE", 2, "b"): 1, ("DELETE", 10, "a"): 1}
    assert added == {("INSERT", 1, "a"): 1, ("INSERT", 20, "a"): 1}
    assert third == {("DELETE", 1, "a"): 1, ("DELETE", 1, "b"): 1, ("DELETE", 12, "a"): 1}


@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (2, "merge-on-read"), (3, "merge-on-read")])
@pytest.mark.cases(landing="2-copy-on-write")
def test_only_touched_files_are_read(world: Any, version: int, mode: str) -> None:
    read = make(world, version, mode, more="PARTITIONED BY (v)")
    world.sql("INSERT INTO local.db.t VALUES (1, 'a'), (2, 'a'), (3, 'a'), (1, 'b'), (2, 'b'), (1, 'c')")
    world.sql("DELETE FROM local.db.t WHERE id = 1 AND v IN ('a', 'b')")
    since = head(world, read)
    world.sql("UPDATE local.db.t SET id = 5 WHERE id = 2 AND v = 'a'")
    to = head(world, read)
    for row in world.sql("SELECT DISTINCT _file FROM local.db.t WHERE v <> 'a'"):
        Path(row[0].removeprefix("file:")).unlink()
    assert told(read_changes(world.spark, read, since, to, ("v",))) == {
        ("UPDATE_BEFORE", 2, "a"): 1,
        ("UPDATE_AFTER", 5, "a"): 1,
    }


def test_from_the_first_commit_on(world: Any) -> None:
    read = make(world, 2, "copy-on-write")
    world.sql(FOUR)
    first = head(world, read)
    world.sql("DELETE FROM local.db.t WHERE id = 2")
    df = read_changes(world.spark, read, None, head(world, read), ())
    assert told(df) == {
        ("INSERT", 1, "a"): 1,
        ("INSERT", 2, "b"): 2,
        ("INSERT", None, "n"): 1,
        ("DELETE", 2, "b"): 2,
    }
    state = state_as_changes(world.spark, read, read_state(world.spark, read, first), first)
    assert state.dtypes == read_changes(world.spark, read, None, first, ()).dtypes
    assert Counter(state.collect()) == Counter(read_changes(world.spark, read, None, first, ()).collect())


def test_a_range_without_changes(world: Any) -> None:
    read = make(world, 2, "copy-on-write")
    world.sql(FOUR)
    since = head(world, read)
    world.sql(COMPACT)
    df = read_changes(world.spark, read, since, head(world, read), ("id",))
    assert df.columns == ["id", "v", "_change_type", "_change_ordinal", "_commit_snapshot_id"]
    assert df.collect() == []
    assert read_changes(world.spark, read, since, since, ()).collect() == []


def test_a_branch_has_its_own_commits(world: Any) -> None:
    read = make(world, 3, "merge-on-read")
    world.sql(FOUR)
    since = head(world, read)
    world.sql("ALTER TABLE local.db.t CREATE BRANCH side")
    world.sql("INSERT INTO local.db.t VALUES (9, 'main')")
    world.sql("UPDATE local.db.t.branch_side SET v = 'side' WHERE id = 1")
    world.sql("INSERT OVERWRITE local.db.t.branch_side VALUES (7, 's')")
    to = int(source_table(world.spark, read).refs().get("side").snapshotId())
    df = read_changes(world.spark, plan_of(world, "db.t", "side"), since, to, ())
    assert told(df) == {
        ("UPDATE_BEFORE", 1, "a"): 1,
        ("UPDATE_AFTER", 1, "side"): 1,
        ("DELETE", 1, "side"): 1,
        ("DELETE", 2, "b"): 2,
        ("DELETE", None, "n"): 1,
        ("INSERT", 7, "s"): 1,
    }
    with pytest.raises(LedgerError, match="rolled back or replaced"):
        read_changes(world.spark, read, head(world, read), to, ())


def test_a_table_upgraded_to_v3(world: Any) -> None:
    """Rows of before have an id only from the first commit of format v3 on."""
    read = make(world, 2, "copy-on-write")
    world.sql("INSERT INTO local.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    since = head(world, read)
    world.sql("UPDATE local.db.t SET v = 'A' WHERE id = 1")
    world.sql("ALTER TABLE local.db.t SET TBLPROPERTIES ('format-version'='3', 'write.update.mode'='merge-on-read')")
    world.sql("UPDATE local.db.t SET v = 'B' WHERE id = 2")
    middle = head(world, read)
    world.sql("UPDATE local.db.t SET v = 'C' WHERE id = 3")
    early = told(read_changes(world.spark, read, since, middle, ()))
    rows = Counter((kind in ("INSERT", "UPDATE_AFTER"), *row) for kind, *row in early.elements())
    assert rows == {(False, 1, "a"): 1, (True, 1, "A"): 1, (False, 2, "b"): 1, (True, 2, "B"): 1}
    late = told(read_changes(world.spark, read, middle, head(world, read), ()))
    assert late == {("UPDATE_BEFORE", 3, "c"): 1, ("UPDATE_AFTER", 3, "C"): 1}


# refusals


def test_positions_need_keys(world: Any) -> None:
    read = make(world, 2, "merge-on-read")
    world.sql(FOUR)
    since = head(world, read)
    world.sql("INSERT INTO local.db.t VALUES (3, 'c')")
    middle = head(world, read)
    world.sql("DELETE FROM local.db.t WHERE v = 'b'")
    assert told(read_changes(world.spark, read, since, middle, ())) == {("INSERT", 3, "c"): 1}
    with pytest.raises(InputError, match=r"without keys.*format v2.*keys=\["):
        read_changes(world.spark, read, since, head(world, read), ())


@pytest.mark.short
def test_equality_deletes_are_refused(world: Any) -> None:
    read = make(world, 2, "merge-on-read")
    world.sql(FOUR)
    since = head(world, read)
    table = source_table(world.spark, read)
    jvm: Any = world.spark._jvm
    ids = world.spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = 1
    file = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(ids)
    file = file.withPath(f"{table.location()}/data/eq.parquet").withFileSizeInBytes(10).withRecordCount(1).build()
    table.newRowDelta().addDeletes(file).commit()
    marked = head(world, read)
    world.sql("INSERT INTO local.db.t VALUES (3, 'c')")
    for span in ((since, marked), (marked, head(world, read))):
        with pytest.raises(InputError, match="equality deletes"):
            read_changes(world.spark, read, *span, ("id",))


def test_expired_commits_are_named(world: Any) -> None:
    read = make(world, 2, "copy-on-write")
    world.sql(FOUR)
    first = head(world, read)
    world.sql("INSERT INTO local.db.t VALUES (3, 'c')")
    second = head(world, read)
    world.sql("DELETE FROM local.db.t WHERE id = 3")
    third = head(world, read)
    world.sql(f"CALL local.system.expire_snapshots(table => 'db.t', snapshot_ids => ARRAY({first}))")
    changes = told(read_changes(world.spark, read, first, third, ()))
    assert changes == {("INSERT", 3, "c"): 1, ("DELETE", 3, "c"): 1}
    with pytest.raises(LedgerError, match=f"snapshot {first} .* has expired"):
        read_changes(world.spark, read, None, third, ())
    world.expire("db.t")
    for since in (first, second):
        with pytest.raises(LedgerError, match=f"snapshot {second} .* has expired"):
            read_changes(world.spark, read, since, third, ())
