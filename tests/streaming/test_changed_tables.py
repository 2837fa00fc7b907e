"""What others do to a source or a target between two batches is told, where rows would be lost or doubled."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from typing import Any

import pytest

from helios import Files, bucket, expect, join, rename
from helios.errors import CheckpointError, HeliosError, InputError, LedgerError, RunError
from helios.spark.sinks.ledger import Ledger
from tests.suite.deaths import dies_at, dies_before_commit

pytestmark = pytest.mark.promise("rollback", "others")


def files_of(world: Any, table: str, first: int, files: int) -> None:
    """Appends files of ten rows in one commit."""
    world.spark.range(first, first + 10 * files, 1, files).writeTo(f"local.{table}").append()


def test_a_source_that_was_rolled_back_behind_a_snapshot_that_is_partly_read(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg")
    files_of(world, "a.s", 0, 1)
    pipeline = world.source("a.s").incremental(poll=1, max_files=1) >> world.sink("a.t").exactly_once()
    world.run(pipeline)
    before = world.load("a.s").current_snapshot().id
    files_of(world, "a.s", 100, 3)
    with dies_before_commit(past=1):
        world.run(pipeline)
    read = len(world.ids("a.t"))
    assert 10 < read < 40  # some of the files
    world.sql(f"CALL local.system.rollback_to_snapshot('a.s', {before})")
    with pytest.raises(LedgerError, match="was rolled back or replaced"):  # also with nothing new
        world.run(pipeline)
    files_of(world, "a.s", 200, 3)
    with pytest.raises(LedgerError, match="was rolled back or replaced"):
        world.run(pipeline)
    assert max(world.ids("a.t")) < 200  # a batch that was planned before may have been finished


@pytest.mark.parametrize("start", ["current", "latest"])
def test_a_table_that_was_empty_and_whose_first_commits_expired(world: Any, start: str) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg")
    pipeline = world.source("a.s").incremental(poll=1, start=start) >> world.sink("a.t").exactly_once()
    world.run(pipeline)
    files_of(world, "a.s", 0, 1)
    files_of(world, "a.s", 10, 1)
    table = world.load("a.s").iceberg
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()  # takes the parent's id away
    assert table.refresh().current_snapshot().parent_snapshot_id is None
    with pytest.raises(HeliosError, match="have expired before they were read"):
        world.run(pipeline)


def expire_by_pyiceberg(world: Any, table: str) -> None:
    """Expires all snapshots but the current one, as PyIceberg does: it also removes the ids of expired parents."""
    loaded = world.load(table).iceberg
    head = loaded.current_snapshot().snapshot_id
    expired = [snapshot.snapshot_id for snapshot in loaded.snapshots() if snapshot.snapshot_id != head]
    loaded.maintenance.expire_snapshots().by_ids(expired).commit()
    assert loaded.refresh().current_snapshot().parent_snapshot_id is None


def test_a_followed_table_of_format_v1_that_was_upgraded_and_expired(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg TBLPROPERTIES ('format-version' = '1')")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").exactly_once()
    world.run(pipeline)
    world.fill("a.s", [1, 2])
    world.sql("ALTER TABLE local.a.s SET TBLPROPERTIES ('format-version' = '2')")
    world.fill("a.s", [3])
    assert world.load("a.s").iceberg.current_snapshot().sequence_number == 1
    expire_by_pyiceberg(world, "a.s")
    with pytest.raises(HeliosError, match="have expired before they were read"):
        world.run(pipeline)


@pytest.mark.parametrize("by", ["PyIceberg", "Iceberg"])
def test_a_full_refresh_deletes_no_rows_whose_writer_has_expired(world: Any, by: str) -> None:
    world.fill("a.s", [1, 2])
    world.fill("a.t", [900])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    expire_by_pyiceberg(world, "a.t") if by == "PyIceberg" else world.expire("a.t")
    with pytest.raises(InputError, match=r"would empty local\.a\.t, and .*snapshot \d+ has expired"):
        world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [1, 2, 900]


@pytest.mark.parametrize("by", ["PyIceberg", "Iceberg"])
def test_published_rows_whose_commits_have_expired_are_not_written_again(world: Any, by: str) -> None:
    world.fill("a.s", [1, 2])
    world.fill("a.t", [900])
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.t").branch("staged"))
    world.sql("CALL local.system.fast_forward('a.t', 'main', 'staged')")
    world.sql("ALTER TABLE local.a.t DROP BRANCH staged")
    world.fill("a.t", [901])
    expire_by_pyiceberg(world, "a.t") if by == "PyIceberg" else world.expire("a.t")
    with pytest.raises(CheckpointError, match="would write them once more"):
        world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2, 900, 901]


@pytest.mark.parametrize("renamed", [False, True])
def test_two_pipelines_that_began_on_an_empty_table_do_not_both_write_its_rows(world: Any, renamed: bool) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg")
    copies = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    one, two = (copies, copies.named("new")) if renamed else (copies.named("one"), copies.named("two"))
    world.run(one)
    world.run(two)
    world.fill("a.s", [1, 2])
    world.run(one)
    with pytest.raises(CheckpointError, match="would write them once more"):
        world.run(two)
    assert world.ids("a.t") == [1, 2]
    world.run(two, beside=("local.a.t" if renamed else "one",))
    world.run(two)
    assert world.ids("a.t") == [1, 1, 2, 2]


def test_a_table_that_was_replaced_is_refilled(world: Any) -> None:
    """The first snapshot after CREATE OR REPLACE has no parent either: nothing has expired before it."""
    world.fill("a.s", [1, 2])
    world.fill("a.t", [900])
    world.sql("CREATE OR REPLACE TABLE local.a.t (id bigint) USING iceberg")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    assert world.load("a.t").iceberg.current_snapshot().parent_snapshot_id is None
    world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [1, 2]


def test_a_full_refresh_is_refused_if_the_first_rows_of_an_empty_source_have_expired(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg")
    pipeline = world.source("a.s").incremental(poll=1, start="latest") >> world.sink("a.t")
    for ids in ([], [1], [2]):
        if ids:
            world.fill("a.s", ids)
        world.run(pipeline)
    world.expire("a.s")
    with pytest.raises(HeliosError, match="snapshots after its first start have expired"):
        world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [1, 2]


def test_a_table_that_was_empty_and_got_a_branch_first(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) USING iceberg")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").exactly_once()
    world.run(pipeline)
    world.sql("ALTER TABLE local.a.s CREATE BRANCH b")
    world.sql("INSERT INTO local.a.s.branch_b VALUES (100)")
    files_of(world, "a.s", 0, 1)
    files_of(world, "a.s", 10, 1)
    world.run(pipeline)
    assert world.ids("a.t") == list(range(20))


def test_partitions_of_a_former_partitioning_are_not_kept_beside_the_new_ones(world: Any) -> None:
    world.fill("a.s", range(10), c="if(id < 5, 'DE', 'FR')")
    world.run(world.source("a.s") >> world.sink("a.t").partition_by("c").overwrite_partitions())
    evolved = world.sink("a.t").partition_by("c", bucket(2, "id"), evolve=True).overwrite_partitions()
    with pytest.raises(RunError, match=r"files of a former partitioning.*rewrite_data_files"):
        world.run(world.source("a.s") >> evolved)
    assert world.ids("a.t") == list(range(10))
    world.sql("CALL local.system.rewrite_data_files(table => 'a.t', options => map('rewrite-all', 'true'))")
    for _ in range(2):
        world.run(world.source("a.s") >> evolved)
    assert world.rows("a.t", "id") == Counter((n,) for n in range(10))


class Dimension:
    """The side that is joined, as a table or as a csv file, whose values are swapped between two runs."""

    def __init__(self, world: Any, kind: str, even: str, odd: str) -> None:
        self._world, self._kind, self._file = world, kind, world.folder / "d.csv"
        if kind == "table":
            world.fill("a.d", range(100), c=f"if(id % 2 = 0, '{even}', '{odd}')")
        self._write(even, odd)

    def _write(self, even: str, odd: str) -> None:
        self._file.write_text("id,c\n" + "".join(f"{n},{odd if n % 2 else even}\n" for n in range(100)))

    @property
    def source(self) -> Any:
        if self._kind == "table":
            return self._world.source("a.d")
        return Files.source(str(self._file), "csv", schema="id bigint, c string")

    def swap(self, even: str, odd: str) -> None:
        if self._kind == "table":
            self._world.sql(f"UPDATE local.a.d SET c = if(id % 2 = 0, '{odd}', '{even}')")
            self._world.expire("a.d")
        self._write(odd, even)
        os.utime(self._file, (2_000_000_000, 2_000_000_000))


@pytest.mark.parametrize("kind", ["table", "csv"])
@pytest.mark.promise("joins")
@pytest.mark.cases(landing="table")
def test_a_batch_is_not_finished_from_another_state_of_what_it_was_joined_with(world: Any, kind: str) -> None:
    world.fill("a.s", range(10))
    side = Dimension(world, kind, "A", "B")
    joined = world.source("a.s").incremental(poll=1) >> join(side.source, on="id", how="inner")
    pipeline = joined >> world.sink("a.t").route(by="c").exactly_once()
    world.run(pipeline)
    world.fill("a.s", range(10, 20))
    with dies_at(Ledger, "commit", past=1):
        world.run(pipeline)
    before = world.ids("a.t_A") + world.ids("a.t_B")
    assert len(before) == 15
    side.swap("A", "B")
    with pytest.raises(LedgerError, match=r"a part of batch 1 is written, and .*, which the batch joins, has"):
        world.run(pipeline)
    assert world.ids("a.t_A") + world.ids("a.t_B") == before


@pytest.mark.promise("joins")
def test_a_planned_batch_runs_with_the_joins_of_the_present_script(world: Any) -> None:
    for name in ("one", "two"):
        world.fill(f"a.{name}", range(20), c=f"'{name}'")
    world.sql("CREATE TABLE local.a.empty (id bigint, c string) USING iceberg")
    followed = world.source("a.s").incremental(poll=1)

    def joined(*names: str) -> Any:
        steps = followed
        for name in names:
            steps = steps >> join(world.source(f"a.{name}") >> rename({"c": name}), on="id", how="left")
        return steps >> world.sink("a.t").exactly_once()

    for n, (before, after) in enumerate([((), ("one",)), (("empty",), ("two",)), (("one", "two"), ("two",))]):
        ids = range(5 * n, 5 * n + 5)
        world.fill("a.s", ids)
        with dies_at(Ledger, "commit"):
            world.run(joined(*before))
        world.run(joined(*after))
        assert world.rows("a.t", "id", after[0]) & Counter((id, after[0]) for id in ids) == Counter(
            (id, after[0]) for id in ids
        )


@pytest.mark.parametrize("swapped", [True, False])
@pytest.mark.parametrize("kind", ["table", "csv"])
def test_what_was_set_aside_of_another_state_is_set_aside_anew(world: Any, kind: str, swapped: bool) -> None:
    world.fill("a.s", range(10))
    side = Dimension(world, kind, "good", "bad")
    checked = expect({"c": "c = 'good'"}, on_fail="quarantine")
    joined = world.source("a.s").incremental(poll=1) >> join(side.source, on="id", how="inner") >> checked
    pipeline = joined >> world.sink("a.t").quarantine("a.q").exactly_once()
    world.run(pipeline)
    world.fill("a.s", range(10, 20))
    with dies_at(Ledger, "commit", past=1):  # the quarantine has its rows of the batch, the target has not
        world.run(pipeline)
    if swapped:
        side.swap("good", "bad")
    world.run(pipeline)
    aside = [json.loads(payload)["id"] for (payload,) in world.rows("a.q", "payload").elements()]
    assert sorted(world.ids("a.t") + aside) == list(range(20))


@pytest.mark.landing
def test_what_an_upsert_remembers_of_a_batch_that_never_landed_goes_with_a_new_checkpoint(world: Any) -> None:
    world.fill("a.s", range(5), v="'old'", o="1L")
    wrong = [False]

    def order(df: Any) -> Any:
        return df.withColumn("o", df.o * 1000) if wrong[0] else df

    sink = world.sink("a.t").upsert("id", order_by="o", store_order=False).exactly_once()
    pipeline = world.source("a.s").incremental(poll=1) >> order >> sink
    world.run(pipeline)
    world.fill("a.s", range(5), v="'new'", o="2L")
    wrong[0] = True
    with dies_at(Ledger, "commit"):
        world.run(pipeline)
    wrong[0] = False
    world.run(pipeline, new_checkpoint=True)
    assert world.rows("a.t", "id", "v") == Counter((n, "new") for n in range(5))
    world.fill("a.s", range(5), v="'late'", o="1L")  # what landed is remembered
    world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter((n, "new") for n in range(5))


@pytest.mark.parametrize(
    "call",
    [
        "fast_forward('a.t', 'main', 'helios_audit_local.a.t')",
        "cherrypick_snapshot('a.t', {staged})",
    ],
    ids=["forwarded", "picked"],
)
def test_a_batch_that_failed_its_audit_and_was_accepted_by_hand_is_in_main_once(world: Any, call: str) -> None:
    def pipeline(most: int) -> Any:
        sink = world.sink("a.t").audit({"small": f"max(id) < {most}"}).publish().exactly_once()
        return world.source("a.s").incremental(poll=1) >> sink

    world.fill("a.s", range(10))
    world.run(pipeline(15))
    world.fill("a.s", range(10, 20))
    with pytest.raises(RunError, match="did not pass its audit"):
        world.run(pipeline(15))
    staged = world.load("a.t").iceberg.refs()["helios_audit_local.a.t"].snapshot_id
    world.sql(f"CALL local.system.{call.format(staged=staged)}")
    world.run(pipeline(100))
    assert world.ids("a.t") == list(range(20))
    world.fill("a.s", range(20, 30))
    world.run(pipeline(100))
    assert world.ids("a.t") == list(range(30))


@pytest.mark.landing
def test_a_lost_checkpoint_of_routed_tables_is_noticed(world: Any) -> None:
    world.fill("a.s", range(5), c="'A'")
    source = world.source("a.s").incremental(poll=1, start="latest")
    pipeline = source >> world.sink("a.t").route(by="c").exactly_once()
    world.run(pipeline)
    world.fill("a.s", range(10, 15), c="'A'")
    world.run(pipeline)
    shutil.rmtree(world.checkpoint(pipeline))
    world.fill("a.s", range(20, 25), c="'A'")
    with pytest.raises(CheckpointError, match=r"local\.a\.t_A holds rows of .*a\.t, but its checkpoint .* is lost"):
        world.run(pipeline)
    assert world.ids("a.t_A") == list(range(10, 15))


@pytest.mark.parametrize("change", ["RENAME COLUMN o TO ord", "DROP COLUMN o"])
def test_an_upsert_whose_order_is_gone_stops(world: Any, change: str) -> None:
    world.fill("a.s", range(3), v="'new'", o="10L")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id", order_by="o").exactly_once()
    world.run(pipeline)
    world.sql(f"ALTER TABLE local.a.t {change}")
    world.fill("a.s", range(3), v="'late'", o="5L")
    with pytest.raises(InputError, match="no longer has the column o, which tells late rows"):
        world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter((n, "new") for n in range(3))
