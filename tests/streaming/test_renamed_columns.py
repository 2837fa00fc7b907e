"""Columns that a source's table has renamed: a follower does not split their values over two columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from helios import Pipeline, aggregate, rename, select, step
from helios.errors import CheckFailed, InputError
from tests.suite.deaths import dies_before_commit
from tests.suite.waiting import until

pytestmark = pytest.mark.promise("evolve")


def follower(world: Any, **renames: str) -> Pipeline:
    sink = world.sink("a.t")
    if renames:
        sink = sink.evolve_schema("full").renames(renames)
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> sink
    return pipeline


@pytest.fixture
def renamed(world: Any) -> None:
    world.fill("a.s", [1, 2], price="id * 10")
    world.run(follower(world))
    world.sql("ALTER TABLE local.a.s RENAME COLUMN price TO cost")
    world.fill("a.s", [3], cost="id * 10")


@pytest.mark.usefixtures("renamed")
def test_it_stops_and_both_fixes_that_it_names_go_on(world: Any) -> None:
    with pytest.raises(CheckFailed, match="its source has renamed price, which would be null") as refused:
        world.plan(follower(world))
    assert 'rename({"cost": "price"})' in str(refused.value)
    assert '.evolve_schema("full").renames({"price": "cost"})' in str(refused.value)
    world.run(world.source("a.s").incremental(poll=1) >> rename({"cost": "price"}) >> world.sink("a.t"))
    assert world.rows("a.t", "id", "price") == Counter({(1, 10): 1, (2, 20): 1, (3, 30): 1})
    world.fill("a.s", [4], cost="id * 10")
    world.run(follower(world, price="cost"))
    assert world.load("a.t").iceberg.schema().column_names == ["id", "cost"]
    assert world.rows("a.t", "id", "cost") == Counter({(1, 10): 1, (2, 20): 1, (3, 30): 1, (4, 40): 1})
    world.fill("a.s", [5], cost="id * 10")
    world.run(follower(world))
    assert world.ids("a.t") == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("renamed")
def test_a_column_that_the_target_has_already_is_filled(world: Any) -> None:
    world.sql("ALTER TABLE local.a.t ADD COLUMN cost bigint")
    world.run(follower(world))
    assert world.rows("a.t", "id", "price", "cost") == Counter({(1, 10, None): 1, (2, 20, None): 1, (3, None, 30): 1})


def test_a_run_that_is_going_on_stops(world: Any) -> None:
    world.fill("a.s", [1], price="id * 10")
    run = world.start(follower(world))
    until(lambda: "batch" in world.kinds())
    world.sql("ALTER TABLE local.a.s RENAME COLUMN price TO cost")
    world.fill("a.s", [2], cost="id * 10")
    until(lambda: run.state == "failed")
    assert "its source has renamed price" in str(run.error)
    assert world.load("a.t").iceberg.schema().column_names == ["id", "price"]


ADDED_AGAIN = ("DROP COLUMN price", "ADD COLUMN price bigint")
RENAMED_ONTO = ("DROP COLUMN price", "RENAME COLUMN cost TO price")
SWAPPED = ("RENAME COLUMN price TO p", "RENAME COLUMN cost TO price", "RENAME COLUMN p TO cost")


def replaced(world: Any, changes: tuple[str, ...], ids: Sequence[int] = (2, 3), **columns: str) -> Pipeline:
    """An upsert whose source has other columns under the names since its first batch; it is refused."""
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id")
    world.fill("a.s", [1, 2], price="id * 10", cost="id * 100")
    world.run(pipeline)
    for change in changes:
        world.sql(f"ALTER TABLE local.a.s {change}")
    world.fill("a.s", ids, **columns)
    before = world.rows("a.t", "id", "price", "cost")
    refused(world, pipeline)
    assert world.rows("a.t", "id", "price", "cost") == before
    return pipeline


def refused(world: Any, pipeline: Pipeline) -> list[str]:
    """The statements that the error names."""
    with pytest.raises(InputError, match=r"local\.a\.s is another column than before.*nothing was written") as error:
        world.run(pipeline)
    return re.findall(r"ALTER TABLE [^,:]*", str(error.value.fix))


@pytest.mark.parametrize("fix", ["RENAME", "DROP"])
@pytest.mark.cases(landing="RENAME")
def test_a_column_that_was_added_again_stops_and_both_fixes_go_on(world: Any, fix: str) -> None:
    pipeline = replaced(world, ADDED_AGAIN, price="id * 7", cost="0")
    world.sql(next(one for one in refused(world, pipeline) if fix in one))
    world.run(pipeline)
    world.fill("a.s", [4], price="1", cost="1")
    world.run(pipeline)
    assert dict(world.rows("a.t", "id", "price").keys()) == {1: None, 2: 14, 3: 21, 4: 1}
    if fix == "RENAME":
        assert dict(world.rows("a.t", "id", "price_before").keys()) == {1: 10, 2: 20, 3: None, 4: None}


def test_a_batch_that_dies_behind_the_new_column_goes_on(world: Any) -> None:
    pipeline = replaced(world, ADDED_AGAIN, price="id * 7", cost="0")
    world.sql(refused(world, pipeline)[0])
    with dies_before_commit():
        world.run(pipeline)
    assert "price" in world.load("a.t").iceberg.schema().column_names
    world.run(pipeline)
    assert dict(world.rows("a.t", "id", "price").keys()) == {1: None, 2: 14, 3: 21}


def test_a_column_that_a_select_names_otherwise_is_followed_to_the_target(world: Any) -> None:
    pipeline = (
        world.source("a.s").incremental(poll=1) >> select("id", "price AS cost") >> world.sink("a.t").upsert("id")
    )
    world.fill("a.s", [1, 2], price="id * 10")
    world.run(pipeline)
    for change in ADDED_AGAIN:
        world.sql(f"ALTER TABLE local.a.s {change}")
    world.fill("a.s", [3], price="id * 7")
    assert "RENAME COLUMN cost TO cost_before" in refused(world, pipeline)[0]
    assert world.rows("a.t", "id", "cost") == Counter({(1, 10): 1, (2, 20): 1})


def test_swapped_columns_stop(world: Any) -> None:
    pipeline = replaced(world, SWAPPED, price="id * 7", cost="id * 8")
    world.sql(refused(world, pipeline)[0])
    world.sql(refused(world, pipeline)[0])  # of a swap both columns are others
    world.run(pipeline)
    assert dict(world.rows("a.t", "id", "price").keys()) == {1: None, 2: 14, 3: 21}
    assert dict(world.rows("a.t", "id", "cost").keys()) == {1: None, 2: 16, 3: 24}


def prices(world: Any, *columns: str) -> dict[Any, Any]:
    return {row[0]: row[1:] for row in world.rows("a.t", "id", *columns)}


def test_columns_that_swap_while_a_commit_waits_stop_and_the_fix_goes_on(world: Any) -> None:
    """The waiting commit has the schema of the batch before; it is read by the new one."""
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id")
    world.fill("a.s", [1], price="10", cost="100")
    world.run(pipeline)
    world.fill("a.s", [2], price="20", cost="200")
    for change in SWAPPED:
        world.sql(f"ALTER TABLE local.a.s {change}")
    world.sql(refused(world, pipeline)[0])
    world.sql(refused(world, pipeline)[0])
    with dies_before_commit():
        world.run(pipeline)
    world.run(pipeline)
    assert prices(world, "price", "cost") == {1: (None, None), 2: (200, 20)}
    assert prices(world, "price_before", "cost_before") == {1: (10, 100), 2: (None, None)}
    for number in (3, 4):  # the batch before was read by the new schema, although its snapshot has the former one
        world.fill("a.s", [number], price="1", cost="2")
        world.run(pipeline)
    assert prices(world, "price", "cost") == {1: (None, None), 2: (200, 20), 3: (1, 2), 4: (1, 2)}


def test_columns_that_swap_within_a_state_that_is_partly_read_stop(world: Any) -> None:
    for number in (1, 2, 3):
        world.fill("a.s", [number], price="id * 10", cost="id * 100")
    pipeline = world.source("a.s").incremental(poll=1, max_files=1) >> world.sink("a.t")
    with dies_before_commit(past=1):
        world.run(pipeline)
    assert len(world.ids("a.t")) == 1
    for change in SWAPPED:
        world.sql(f"ALTER TABLE local.a.s {change}")
    refused(world, pipeline)
    world.run(pipeline, full_refresh=True)
    assert prices(world, "price", "cost") == {1: (100, 10), 2: (200, 20), 3: (300, 30)}


def test_a_key_that_the_target_loses_during_a_batch_is_not_added_again(world: Any) -> None:
    """A new column with its name would match no row, and each upserted row would be inserted."""
    pending: list[str] = []

    def rename_key(df: Any) -> Any:
        if pending and not df.isStreaming:
            world.sql(pending.pop())
        return df

    pipeline = world.source("a.s").incremental(poll=1) >> step(rename_key) >> world.sink("a.t").upsert("id")
    world.fill("a.s", [1, 2], price="id")
    world.run(pipeline)
    world.fill("a.s", [1], price="7")
    pending.append("ALTER TABLE local.a.t RENAME COLUMN id TO id_old")
    with pytest.raises(CheckFailed, match=r"upsert\(id\): no column 'id' in the table"):
        world.run(pipeline)
    assert world.rows("a.t", "id_old", "price") == Counter({(1, 1): 1, (2, 2): 1})


@pytest.mark.parametrize(("column", "use"), [("price", "be replaced by late rows"), ("id", "match no key")])
def test_a_key_or_order_column_that_the_target_has_anew_stops_until_it_is_filled(
    world: Any, column: str, use: str
) -> None:
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id", order_by="price")
    world.fill("a.s", [1, 2], price="id * 5")
    world.run(pipeline)
    world.sql(f"ALTER TABLE local.a.t DROP COLUMN {column}")
    world.sql(f"ALTER TABLE local.a.t ADD COLUMN {column} bigint")
    world.fill("a.s", [2], price="1")  # late
    with pytest.raises(InputError, match=rf"{column} of local\.a\.t is another column .*would {use}") as error:
        world.run(pipeline)
    filled = "id * 5" if column == "price" else "price DIV 5"
    [statement] = re.findall(r"UPDATE .* IS NULL", str(error.value.fix))
    world.sql(statement.replace("...", filled))
    world.run(pipeline)
    assert world.rows("a.t", "id", "price") == Counter({(1, 5): 1, (2, 10): 1})


@pytest.mark.parametrize("column", ["id", "price"])
def test_a_key_or_order_column_that_others_swap_in_the_target_stops(world: Any, column: str) -> None:
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id", order_by="price")
    world.fill("a.s", [1, 2], price="id * 5", cost="id * 100")
    world.run(pipeline)
    for names in ((column, "tmp"), ("cost", column), ("tmp", "cost")):
        world.sql("ALTER TABLE local.a.t RENAME COLUMN {} TO {}".format(*names))
    world.fill("a.s", [2], price="11", cost="0")
    before = world.rows("a.t")
    with pytest.raises(InputError, match=rf"{column} of local\.a\.t is another column .*is named cost now"):
        world.run(pipeline)
    assert world.rows("a.t") == before
    for names in ((column, "tmp"), ("cost", column), ("tmp", "cost")):
        world.sql("ALTER TABLE local.a.t RENAME COLUMN {} TO {}".format(*names))
    world.run(pipeline)
    assert world.rows("a.t", "id", "price") == Counter({(1, 5): 1, (2, 11): 1})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("RENAME COLUMN price TO amount", "renamed to amount, which gets no more values"),
        ("DROP COLUMN price", "dropped"),
    ],
)
def test_a_column_that_the_target_no_longer_has_is_added_again_and_the_run_says_so(
    world: Any, change: str, told: str
) -> None:
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.fill("a.s", [1], price="id * 5")
    world.run(pipeline)
    assert "note" not in world.kinds()
    world.sql(f"ALTER TABLE local.a.t {change}")
    world.fill("a.s", [2], price="id * 5")
    world.run(pipeline)
    assert world.rows("a.t", "id", "price") == Counter({(1, None): 1, (2, 10): 1})
    assert any(f"new column price: its former column price was {told}" in str(event.message) for event in world.events)


def test_a_column_that_takes_the_name_of_another_stops_and_a_full_refresh_goes_on(world: Any) -> None:
    pipeline = replaced(world, RENAMED_ONTO, [3], price="id * 7")
    world.run(pipeline, full_refresh=True)
    assert dict(world.rows("a.t", "id", "price").keys()) == {1: 100, 2: 200, 3: 21}


def test_what_the_target_does_not_take_stops_nothing(world: Any) -> None:
    """Another column, a column that only the source has, and one of a target that begins behind the change."""
    pipeline = world.source("a.s").incremental(poll=1) >> select("id") >> world.sink("a.t")
    world.fill("a.s", [1], price="id * 10")
    world.run(pipeline)
    for change in ADDED_AGAIN:
        world.sql(f"ALTER TABLE local.a.s {change}")
    world.fill("a.s", [2], price="id * 10")
    world.run(pipeline)
    whole = world.source("a.s").incremental(poll=1) >> world.sink("a.whole")
    world.run(whole)
    world.fill("a.s", [3], price="id * 10")
    world.run(whole)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]
    assert dict(world.rows("a.whole", "id", "price").keys()) == {1: None, 2: 20, 3: 30}


def test_it_is_known_by_its_name_behind_a_rename(world: Any) -> None:
    pipeline = world.source("a.s").incremental(poll=1) >> rename({"price": "paid"}) >> world.sink("a.t")
    world.fill("a.s", [1], price="id * 10")
    world.run(pipeline)
    for change in ADDED_AGAIN:
        world.sql(f"ALTER TABLE local.a.s {change}")
    world.fill("a.s", [2], price="id * 7")
    world.sql(refused(world, pipeline)[0])
    world.run(pipeline)
    assert dict(world.rows("a.t", "paid", "paid_before").keys()) == {None: 10, 14: None}


@pytest.mark.parametrize("kind", ["view", "state"])
def test_what_is_computed_from_the_former_column_is_not_gone_on_with(world: Any, kind: str) -> None:
    source = world.source("a.s").incremental(poll=1)
    source = source.changes(keys="id") if kind == "view" else source
    pipeline = source >> aggregate("part", total="sum(price)") >> world.sink("a.t").upsert("part")
    world.fill("a.s", [1, 2], price="id * 10", part="id % 2")
    world.run(pipeline)
    for change in ADDED_AGAIN:
        world.sql(f"ALTER TABLE local.a.s {change}")
    world.fill("a.s", [3], price="5", part="id % 2")
    with pytest.raises(InputError, match=r"another column than before.*--full-refresh"):
        world.run(pipeline)
    assert world.rows("a.t", "part", "total") == Counter({(1, 10): 1, (0, 20): 1})
    world.run(pipeline, full_refresh=True)
    assert world.rows("a.t", "part", "total") == Counter({(1, 5): 1, (0, None): 1})
