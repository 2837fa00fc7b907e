"""Backfills of pipelines whose source, target, checkpoint or name is not the one with which they began."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from helios import Files, Pipeline, with_columns
from helios.errors import InputError
from helios.plan.backfills import Ask
from helios.spark.backfill.backfill import Backfill
from helios.spark.backfill.result import Backfilled

pytestmark = pytest.mark.promise("backfill")

ALL = Ask(where="id < 100")


def pipeline(world: Any, value: str = "1", sink: Any = None, **options: Any) -> Pipeline:
    made: Pipeline = world.source("a.s").incremental(**options) >> with_columns(v=value) >> (sink or world.sink("a.t"))
    return made


def backfill(world: Any, mended: Pipeline, ask: Ask = ALL, other: str | None = None) -> Backfilled:
    plan = world.plan(mended)
    table = replace(plan.write.table, table=other) if other is not None else None
    return Backfill(plan, world.spark, ask, other=table).run()


def batches(world: Any, made: Pipeline, *ids: range) -> None:
    for some in ids:
        world.fill("a.s", some)
        world.run(made)


def values(world: Any) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = world.rows("a.t", "id", "v")
    return found


def lose(world: Any, count: int) -> None:
    """Takes the newest commits of the target back, and lets the pipeline go on behind them."""
    table = world.load("a.t").iceberg
    snapshot = table.metadata.snapshots[-1 - count].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(snapshot).commit()


def test_a_source_that_was_dropped_and_made_again(world: Any) -> None:
    """Its rows are gone; `--from` reads another table, or the new one."""
    world.fill("a.archive", range(4))
    batches(world, pipeline(world), range(4))
    world.sql("DROP TABLE local.a.s")
    world.fill("a.s", range(1, 4))
    for ask in (ALL, Ask(commits="0")):
        with pytest.raises(InputError, match=r"local\.a\.s was replaced by another table") as e:
            backfill(world, pipeline(world, "2"), ask)
        assert "--from needs --where" in str(e.value)
    assert values(world) == Counter({(i, 1): 1 for i in range(4)})
    backfill(world, pipeline(world, "2"), Ask(where="id < 2"), "archive")
    assert values(world) == Counter([(0, 2), (1, 2), (2, 1), (3, 1)])
    backfill(world, pipeline(world, "3"), Ask(where="id >= 2"), "s")
    assert values(world) == Counter([(0, 2), (1, 2), (2, 3), (3, 3)])


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_rows_that_were_rolled_back_do_not_come_back(world: Any, start: str) -> None:
    """The source still has them, behind the first start; a full refresh reads them again, as it says."""
    world.fill("a.s", [])
    world.run(pipeline(world, start=start))
    batches(world, pipeline(world, start=start), range(2), range(2, 4))
    lose(world, 1)
    world.run(pipeline(world, start=start), new_checkpoint=True)
    batches(world, pipeline(world, start=start), range(4, 6), range(6, 8))
    held = [0, 1, 4, 5, 6, 7]
    mended = pipeline(world, "2", start=start)
    with pytest.raises(InputError, match="were rolled back: the source still has their rows, which would come back"):
        backfill(world, mended)
    with pytest.raises(InputError, match=r"rolled back: --from local\.a\.s, its own source, still has their rows"):
        backfill(world, mended, other="s")
    newest = world.load("a.t").current_snapshot().id
    backfill(world, mended, Ask(commits=str(newest)))
    assert values(world) == Counter({(i, 2 if i > 5 else 1): 1 for i in held})
    world.fill("a.archive", held)
    backfill(world, mended, other="archive")
    assert values(world) == Counter({(i, 2): 1 for i in held})
    world.run(mended, full_refresh=True)
    backfill(world, pipeline(world, "3", start=start))
    assert values(world) == Counter({(i, 3): 1 for i in range(8)})


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_pipeline_all_of_whose_batches_were_rolled_back(world: Any, start: str) -> None:
    """Only the new checkpoint's batches are in the target, and its start is known."""
    world.fill("a.s", [])
    world.fill("a.t", [100], v="1")
    world.run(pipeline(world, start=start))
    batches(world, pipeline(world, start=start), range(2), range(2, 4))
    lose(world, 2)
    world.run(pipeline(world, start=start), new_checkpoint=True)
    batches(world, pipeline(world, start=start), range(4, 6))
    backfill(world, pipeline(world, "2", start=start))
    assert values(world) == Counter([(100, 1), (4, 2), (5, 2)])


@pytest.mark.parametrize("kind", ["branch", "renamed"])
def test_a_new_checkpoint_whose_former_one_has_other_stamps(world: Any, kind: str) -> None:
    """The rows of the former checkpoint lie on the branch, or under the former name: they are not taken away."""
    world.fill("a.t", [100], v="1")
    sink = world.sink("a.t").branch("side") if kind == "branch" else world.sink("a.t")

    def made(value: str, **named: str) -> Pipeline:
        return pipeline(world, value, sink).named("copy" if named or kind == "branch" else "first", **named)

    batches(world, made("1"), range(2))
    if kind == "renamed":
        world.run(made("1", was="first"))
    now = made("1", was="first") if kind == "renamed" else made("1")
    world.run(now, new_checkpoint=True)
    batches(world, now, range(2, 4))
    mended = pipeline(world, "2", sink).named("copy")
    with pytest.raises(InputError, match=r"it is no longer known where .* first began to read"):
        backfill(world, mended)
    branch = "side" if kind == "branch" else "main"
    held = world.load("a.t").iceberg.scan().use_ref(branch).to_arrow()["id"].to_pylist()
    assert sorted(held) == [0, 1, 2, 3, 100]


def test_from_the_folder_of_the_source_is_refused(world: Any) -> None:
    """A file that came since would be written by the backfill and by the next batch."""
    folder = world.folder / "in"
    folder.mkdir()
    (folder / "1.json").write_text('{"id": 1}\n')

    def made(value: str) -> Pipeline:
        source = Files.source(str(folder), format="json", schema="id bigint").incremental()
        made: Pipeline = source >> with_columns(v=value) >> world.sink("a.t")
        return made

    world.run(made("1"))
    (folder / "2.json").write_text('{"id": 2}\n')
    for other in (str(folder), f"{folder}/", str(world.folder), f"{folder}/../in"):
        with pytest.raises(InputError, match=r"--from .* is in the folder of .*, or contains it"):
            Backfill(world.plan(made("2")), world.spark, ALL, other=other).run()
    copy = world.folder / "copy"
    copy.mkdir()
    (copy / "1.json").write_text('{"id": 1}\n')
    Backfill(world.plan(made("2")), world.spark, ALL, other=str(copy)).run()
    world.run(made("2"))
    assert values(world) == Counter([(1, 2), (2, 2)])
