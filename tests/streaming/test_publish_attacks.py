"""Attacks on `helios branch TABLE NAME --publish`: whatever happens, main has each row once, or the run is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from helios import Files, Pipeline
from helios.catalog.names import TableName
from helios.errors import HeliosError, RunError
from helios.spark.checkpoint import upsert_state
from helios.spark.maintenance import publish as java
from helios.table.publish import plan_publication
from tests.streaming.publications import published

pytestmark = pytest.mark.promise("publish")


def appends(world: Any, branch: str | None = None, name: str | None = None, version: int = 2) -> Pipeline:
    sink = world.sink("a.t").format_version(version)
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> (sink.branch(branch) if branch else sink)
    return pipeline.named(name) if name else pipeline


def on_branch(world: Any, branch: str = "staging") -> list[int]:
    return sorted(row[0] for row in world.sql(f"SELECT id FROM local.a.t VERSION AS OF '{branch}'"))


@pytest.mark.parametrize("name", [None, "orders"], ids=["unnamed", "named"])
def test_a_branch_is_published_while_its_pipeline_runs(world: Any, name: str | None) -> None:
    world.fill("a.s", range(10))
    world.run(appends(world, "staging", name))
    run = world.start(appends(world, "staging", name))
    for first in range(10, 60, 10):
        world.fill("a.s", range(first, first + 10))
        with suppress(RunError):  # the branch may move in between
            published(world)
    run.stop()
    assert run.await_termination(60)
    published(world)
    world.fill("a.s", range(60, 70))
    world.run(appends(world, None, name))
    assert world.ids("a.t") == list(range(70))


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_were_folded_after_the_publication_count_once(
    world: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(upsert_state, "FOLD_AFTER", 1)

    def upserts(branch: str | None) -> Pipeline:
        sink = world.sink("a.t").format_version(version)
        sink = sink.branch(branch) if branch else sink
        made: Pipeline = world.source("a.s").incremental(poll=1) >> sink.upsert("id", order_by="n", delete_when="gone")
        return made

    def arrive(*rows: tuple[int, int, bool]) -> None:
        values = ", ".join(f"({id}L, {n}L, {str(gone).lower()})" for id, n, gone in rows)
        world.sql(f"INSERT INTO local.a.s VALUES {values}")

    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint, n bigint, gone boolean) USING iceberg")
    arrive((1, 1, False), (2, 1, False), (3, 1, False))
    world.run(upserts("staging"))
    arrive((2, 5, True))
    world.run(upserts("staging"))
    published(world)
    for n in range(10, 13):
        arrive((n, n, False), (n, n + 1, True), (1, n, False))
        world.run(upserts("staging"))
    arrive((3, 30, True), (3, 29, False), (2, 4, False), (50, 1, False))
    world.run(upserts("staging"))
    world.run(upserts(None))
    assert on_branch(world) == [1, 50]
    assert world.rows("a.t", "id", "n") == {(1, 12): 1, (50, 1): 1}
    arrive((12, 12, False), (2, 4, False), (51, 1, False))
    world.run(upserts(None))
    assert world.ids("a.t") == [1, 50, 51]


@pytest.mark.parametrize("name", [None, "orders"], ids=["unnamed", "named"])
def test_a_branch_that_is_gone(world: Any, name: str | None) -> None:
    world.fill("a.t", [100])
    world.fill("a.s", range(10))
    world.run(appends(world, "staging", name))
    head = world.load("a.t").branches()["staging"]
    world.sql("ALTER TABLE local.a.t DROP BRANCH staging")
    with pytest.raises(HeliosError, match="has no branch 'staging'"):
        published(world)
    with pytest.raises(HeliosError, match="rolled back or replaced"):
        world.run(appends(world, "staging", name))
    world.sql(f"ALTER TABLE local.a.t CREATE BRANCH staging AS OF VERSION {head}")
    published(world)
    world.run(appends(world, None, name))
    assert world.ids("a.t") == [*range(10), 100]


@pytest.mark.parametrize("version", [2, 3])
def test_a_branch_of_another_engine_beside_a_pipeline_on_main(world: Any, version: int) -> None:
    world.fill("a.s", range(10))
    world.run(appends(world, version=version))
    world.sql("ALTER TABLE local.a.t CREATE BRANCH staging")
    world.sql("INSERT INTO local.a.t.branch_staging VALUES (100), (100)")
    world.sql("DELETE FROM local.a.t.branch_staging WHERE id = 3")
    assert published(world).pipelines == []
    world.fill("a.s", range(10, 20))
    world.run(appends(world, version=version))
    assert world.ids("a.t") == [*(id for id in range(20) if id != 3), 100, 100]


@pytest.mark.parametrize("name", [None, "orders"], ids=["unnamed", "named"])
def test_main_that_another_engine_has_moved_to_the_branch(world: Any, name: str | None) -> None:
    world.fill("a.s", range(10))
    world.run(appends(world, "staging", name))
    world.sql("CALL local.system.fast_forward('a.t', 'main', 'staging')")
    world.fill("a.s", range(10, 20))
    if name is None:
        with pytest.raises(HeliosError, match="would write them once more") as refused:
            world.run(appends(world))
        assert "helios branch local.a.t staging --publish" in str(refused.value.fix)
    done = published(world)
    assert (done.moves_main, done.pipelines) == (False, [name or "local.a.t"])
    world.run(appends(world, None, name))
    assert world.ids("a.t") == list(range(20))


@pytest.mark.parametrize("name", [None, "orders"], ids=["unnamed", "named"])
def test_main_without_a_publication_is_refused(world: Any, name: str | None) -> None:
    world.fill("a.s", range(10))
    world.run(appends(world, "staging", name))
    if name is not None:
        with pytest.raises(HeliosError, match="rolled back or replaced"):
            world.run(appends(world, None, name))
        return
    world.run(appends(world))  # another pipeline, which fills main by itself
    with pytest.raises(HeliosError, match=r"main of local\.a\.t has moved since staging began"):
        published(world)
    assert world.ids("a.t") == list(range(10))


def test_a_full_refresh_of_main_knows_the_published_rows_as_its_own(world: Any) -> None:
    world.fill("a.s", range(10))
    world.run(appends(world, "staging"))
    published(world)
    world.fill("a.s", range(10, 20))
    world.run(appends(world))
    world.run(appends(world), full_refresh=True)
    assert world.ids("a.t") == list(range(20))


def test_rows_of_files_are_not_read_again(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()

    def reads(branch: str | None) -> Pipeline:
        sink = world.sink("a.t").branch(branch) if branch else world.sink("a.t")
        made: Pipeline = Files.source(str(folder), format="json", schema="id bigint").incremental(poll=1) >> sink
        return made

    for id in (1, 2):
        (folder / f"{id}.json").write_text(f'{{"id": {id}}}\n')
        world.run(reads("staging"))
    published(world)
    (folder / "3.json").write_text('{"id": 3}\n')
    world.run(reads(None))
    (folder / "0.json").write_text('{"id": 4}\n')
    world.run(reads(None))
    assert world.ids("a.t") == [1, 2, 3, 4]


def test_a_table_that_changes_after_the_plan_is_left_alone(world: Any) -> None:
    world.fill("a.s", range(10))
    world.run(appends(world, "staging", "orders", version=3))
    name = TableName(world.catalog, ("a",), "t")
    changes = (
        "INSERT INTO local.a.t.branch_staging VALUES (50)",
        'ALTER TABLE local.a.t SET TBLPROPERTIES (\'helios.ledger.orders\' = \'{"v": 1, "checkpoint": "a new one"}\')',
        "INSERT INTO local.a.t VALUES (51)",
    )
    for change in changes:
        planned = plan_publication(world.load("a.t"), "staging")
        world.sql(change)
        before = world.load("a.t").branches()
        with pytest.raises(RunError, match="changed by another writer meanwhile"):
            java.publish(world.spark, name, planned)
        assert world.load("a.t").branches() == before
