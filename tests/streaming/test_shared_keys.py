"""Upserts of several pipelines into one table: what one has deleted, a late row of another one does not bring back."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Pipeline, expect
from helios.errors import HeliosError, InputError
from helios.plan.notes import with_notes
from helios.spark.checkpoint import upsert_state
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.transaction import Transaction
from helios.spark.replay.replay import Replay
from helios.spark.run import startup
from tests.suite.deaths import DIED, dies_before_commit

pytestmark = pytest.mark.promise("upsert", "identity")

Found = Counter[tuple[Any, ...]]


def upserts(world: Any, source: str, **how: Any) -> Pipeline:
    """A pipeline that is called as its source."""
    how = {"order_by": "n", "delete_when": "gone"} | how
    pipeline: Pipeline = world.source(f"a.{source}").incremental(poll=1) >> world.sink("a.t").upsert("id", **how)
    return pipeline.named(source)


def arrive(world: Any, source: str, *rows: tuple[int, int, bool]) -> None:
    """A commit of rows: their key, their order, and whether they delete it."""
    for id, n, gone in rows:
        world.fill(f"a.{source}", [id], n=f"{n}", gone=str(gone).lower(), v=f"'{source} {n}'")


def at_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Acts once, right before a batch that is written is committed."""
    real, acts = Transaction.commit, [act]

    def commit(pending: Transaction) -> None:
        if acts:
            acts.pop()()
        real(pending)

    monkeypatch.setattr(Transaction, "commit", commit)


@pytest.fixture
def one_deletes(world: Any) -> Pipeline:
    """`one` has written keys 1 and 2, and has deleted 2, and 9, which it never had, with order 5."""
    arrive(world, "one", (1, 1, False), (2, 1, False))
    one = upserts(world, "one")
    world.run(one)
    arrive(world, "one", (2, 5, True), (9, 5, True))
    world.run(one)
    return one


LATE = ((2, 4, False), (9, 4, False), (3, 4, False))
"""Rows of another pipeline that are older than these deletes, and one of a key that nobody has deleted."""


@pytest.mark.short
@pytest.mark.parametrize("how", [{}, {"delete_when": None}], ids=["deletes", "plain"])
@pytest.mark.cases(short="plain")
def test_a_second_pipeline_knows_the_deletes_of_the_first(
    world: Any, one_deletes: Pipeline, how: dict[str, Any]
) -> None:
    arrive(world, "two", *LATE)
    two = upserts(world, "two", **how)
    plan = world.plan(two)
    noted, problems = with_notes(plan, [plan])
    assert problems == []
    note = "one also upserts, by the same keys and order_by: each pipeline knows the keys that the other has deleted"
    assert note in noted.write.notes
    world.run(two)
    assert world.ids("a.t") == [1, 3]
    arrive(world, "two", (2, 6, False), (9, 5, False))  # of equal orders the later one wins
    world.run(two)
    assert world.ids("a.t") == [1, 2, 3, 9]


def test_the_first_one_knows_the_deletes_of_the_second(world: Any, one_deletes: Pipeline) -> None:
    arrive(world, "two", (1, 7, True))
    world.run(upserts(world, "two"))
    arrive(world, "one", (1, 6, False), (4, 1, False))
    world.run(one_deletes)
    assert world.ids("a.t") == [4]


def test_a_delete_of_a_key_that_the_table_does_not_have_is_known(world: Any, one_deletes: Pipeline) -> None:
    arrive(world, "one", (7, 5, True))
    world.run(one_deletes)  # changes no row
    arrive(world, "two", (7, 4, False), (3, 4, False))
    world.run(upserts(world, "two"))
    assert world.ids("a.t") == [1, 3]


@pytest.mark.landing
@pytest.mark.usefixtures("native_workers")
@pytest.mark.parametrize("how", [{}, {"delete_when": None}], ids=["deletes", "plain"])
@pytest.mark.cases(landing="plain")
def test_a_delete_that_lands_between_the_look_up_and_the_commit(
    world: Any, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    arrive(world, "one", (1, 1, False))
    one, two = upserts(world, "one"), upserts(world, "two", **how)
    world.run(one)
    arrive(world, "one", (9, 5, True))  # of a key that the table does not have: no file tells of a conflict
    arrive(world, "two", *LATE)
    at_commit(monkeypatch, lambda: world.run(one))
    world.run(two)
    assert world.ids("a.t") == [1, 2, 3]


def test_a_delete_of_other_keys_is_no_conflict(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    arrive(world, "one", (1, 1, False))
    one = upserts(world, "one")
    sink = world.sink("a.t").upsert("id", order_by="n", delete_when="gone").retry(retries=0)
    two = (world.source("a.two").incremental(poll=1) >> sink).named("two")
    world.run(one)
    arrive(world, "one", (9, 5, True))
    arrive(world, "two", (3, 4, False))
    at_commit(monkeypatch, lambda: world.run(one))
    world.run(two)
    assert world.ids("a.t") == [1, 3]


def test_what_a_batch_that_has_not_landed_deletes_is_not_known_yet(world: Any, one_deletes: Pipeline) -> None:
    arrive(world, "one", (1, 6, True))
    with dies_before_commit():
        world.run(one_deletes)
    arrive(world, "two", (1, 5, False), (3, 1, False))
    world.run(upserts(world, "two"))
    assert world.rows("a.t", "id", "v") == Counter({(1, "two 5"): 1, (3, "two 1"): 1})
    world.run(one_deletes)
    arrive(world, "two", (1, 5, False))
    world.run(upserts(world, "two"))
    assert world.ids("a.t") == [3]


@pytest.mark.short
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.cases(short="True")
def test_deletes_survive_a_new_checkpoint_whose_old_one_is_lost(
    world: Any, one_deletes: Pipeline, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    if lost:
        shutil.rmtree(world.checkpoint(one_deletes))

    def dies(*given: Any, **named: Any) -> None:
        raise RuntimeError(DIED)

    with monkeypatch.context() as patched:  # behind the new state, and before the record names it
        patched.setattr(startup, "write_claim", dies)
        with pytest.raises(HeliosError, match=DIED):
            world.run(one_deletes, new_checkpoint=True)
    world.run(one_deletes, new_checkpoint=True)
    for source in ("one", "two"):
        arrive(world, source, *LATE)
        world.run(upserts(world, source))
        assert world.ids("a.t") == [1, 3]


def test_what_was_folded_stays_for_those_who_read_it(
    world: Any, one_deletes: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsert_state, "FOLD_AFTER", 1)
    [state] = (world.folder / ".helios" / "warehouse" / "_helios" / "keys").iterdir()

    def kept(kind: str) -> list[str]:
        return sorted(path.name for path in (state / kind).iterdir())

    for number in range(3):
        arrive(world, "one", (20 + number, 5, True))
        world.run(one_deletes)
    assert kept("delta") == ["1", "2", "3", "4"]
    assert kept("base") == ["2"]
    monkeypatch.setattr(upsert_state, "KEPT_SECONDS", 0.0)
    arrive(world, "one", (30, 5, True))
    world.run(one_deletes)
    assert kept("delta") == ["5"]
    assert kept("base") == ["4"]
    arrive(world, "two", (2, 4, False), (9, 4, False), (22, 4, False), (30, 4, False), (3, 4, False))
    world.run(upserts(world, "two"))
    assert world.ids("a.t") == [1, 3]


def test_versions_end_at_the_deletes_of_others(world: Any) -> None:
    arrive(world, "one", (1, 1, False), (1, 5, True), (1, 9, True))
    one, two = upserts(world, "one", history=True), upserts(world, "two", history=True)
    world.run(one)
    arrive(world, "two", (1, 3, False), (1, 7, False), (1, 11, False))
    world.run(two)
    columns = ("v", "valid_from", "valid_to")
    wanted: Found = Counter({("one 1", 1, 3): 1, ("two 3", 3, 5): 1, ("two 7", 7, 9): 1, ("two 11", 11, None): 1})
    assert world.rows("a.t", *columns) == wanted


@pytest.mark.parametrize("how", [{"order_by": "n + 1"}, {"order_by": "n", "store_order": False}], ids=["sum", "out"])
def test_orders_that_the_table_does_not_store_are_compared(world: Any, how: dict[str, Any]) -> None:
    one, two = (upserts(world, name, **how, delete_when=None) for name in ("one", "two"))
    arrive(world, "one", (1, 5, False), (2, 5, False))
    world.run(one)
    arrive(world, "two", (1, 4, False), (2, 6, False))
    world.run(two)
    assert world.rows("a.t", "id", "v") == Counter({(1, "one 5"): 1, (2, "two 6"): 1})
    arrive(world, "one", (1, 6, False), (2, 5, False))
    world.run(one)
    assert world.rows("a.t", "id", "v") == Counter({(1, "one 6"): 1, (2, "two 6"): 1})


def test_a_replay_knows_the_deletes_of_others_and_they_know_its(world: Any) -> None:
    def one(most: int) -> Pipeline:
        rows = world.source("a.one").incremental(poll=1) >> expect({"small": f"id < {most}"}, on_fail="quarantine")
        sink = world.sink("a.t").upsert("id", order_by="n", delete_when="gone").quarantine("a.bad")
        made: Pipeline = rows >> sink
        return made.named("one")

    arrive(world, "one", (1, 1, False), (20, 4, False), (21, 5, True))
    world.run(one(10))
    arrive(world, "two", (20, 5, True), (3, 1, False))
    world.run(upserts(world, "two"))
    assert Replay(world.plan(one(99)), world.spark).run().taken == 2
    arrive(world, "two", (21, 4, False))
    world.run(upserts(world, "two"))
    assert world.ids("a.t") == [1, 3]


def test_a_renamed_pipeline_and_a_renamed_table_keep_their_deletes(world: Any, one_deletes: Pipeline) -> None:
    world.sql("ALTER TABLE local.a.t RENAME TO a.u")
    sink = world.sink("a.u").upsert("id", order_by="n", delete_when="gone")
    world.run((world.source("a.one").incremental(poll=1) >> sink).named("new", was="one"))
    arrive(world, "two", *LATE)
    world.run((world.source("a.two").incremental(poll=1) >> sink).named("two"))
    arrive(world, "one", (2, 4, False))
    world.run((world.source("a.one").incremental(poll=1) >> sink).named("new"))
    assert world.ids("a.u") == [1, 3]


def test_a_full_refresh_forgets_its_own_deletes_alone(world: Any, one_deletes: Pipeline) -> None:
    arrive(world, "two", (3, 5, True))
    world.run(upserts(world, "two"))
    world.run(one_deletes, full_refresh=True)  # the other one has no rows
    assert len(list((world.folder / ".helios" / "warehouse" / "_helios" / "keys").glob("*/terms.json"))) == 3
    arrive(world, "one", (3, 4, False), (2, 4, False))
    world.run(one_deletes)
    assert world.ids("a.t") == [1]


def test_a_state_in_a_checkpoint_is_shared_from_the_next_one_on(
    world: Any, one_deletes: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a state the record does not tell of."""
    there = in_checkpoint(world, one_deletes)
    arrive(world, "one", (8, 5, True))
    world.run(one_deletes)
    assert there.is_dir()
    arrive(world, "two", *LATE, (8, 4, False))
    two = upserts(world, "two")
    with pytest.raises(InputError, match="one remembers deleted keys, which two does not know") as refused:
        world.run(two)
    # The first fix of the error, as it is written.
    assert str(refused.value.fix).startswith("run one once with `helios run --new-checkpoint`; then one shares")
    world.run(one_deletes, new_checkpoint=True)
    assert not there.exists()
    world.run(two)
    assert world.ids("a.t") == [1, 3]


def in_checkpoint(world: Any, pipeline: Pipeline) -> Path:
    """Puts the state into the checkpoint, as where that was in another store; the record does not tell of it then."""
    table, key = load_table(world.spark, world.plan(pipeline).write.table), "helios.ledger.one"
    assert table is not None
    before, _, folder = (table.properties().get(key) or "").partition(',"keys":"')
    table.updateProperties().set(key, before + "}").commit()
    there = world.checkpoint(pipeline) / "helios" / "keys" / "local.a.t"
    there.parent.mkdir(exist_ok=True)
    Path(folder.rstrip('"}').removeprefix("file:")).rename(there)
    return there


def test_a_base_that_the_record_does_not_reach_is_taken_over(world: Any, one_deletes: Pipeline) -> None:
    """Batches that changed nothing are folded, too, and no record tells of those."""
    there = in_checkpoint(world, one_deletes)
    (there / "base").mkdir()
    (there / "delta" / "1").rename(there / "base" / "7")
    world.run(one_deletes, new_checkpoint=True)
    arrive(world, "one", *LATE)
    world.run(one_deletes)
    assert world.ids("a.t") == [1, 3]


def test_deletes_are_remembered_as_long_as_their_pipeline_says(world: Any, one_deletes: Pipeline) -> None:
    arrive(world, "two", *LATE)
    world.run(upserts(world, "two", tombstones=0.001))
    assert world.ids("a.t") == [1, 3]


def test_a_driver_that_was_replaced_deletes_and_claims_nothing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upsert_state, "KEPT_SECONDS", 0.0)
    keys = world.folder / ".helios" / "warehouse" / "_helios" / "keys"

    def at(place: str) -> Pipeline:
        sink = world.sink("a.t").upsert("id", order_by="n", delete_when="gone")
        rows = world.source("a.one").incremental(poll=1)
        made: Pipeline = rows >> sink.checkpoint(str(world.folder / place))
        return made.named("one")

    arrive(world, "one", (1, 1, False), (2, 5, True))
    world.run(at("before"))
    arrive(world, "one", (3, 5, True))
    world.run(at("now"), new_checkpoint=True)
    arrive(world, "one", (4, 5, True))
    for _ in range(2):
        with pytest.raises(HeliosError, match="driven from another checkpoint"):
            world.run(at("before"), beside=["else"])
    assert keys.exists()
    arrive(world, "one", (2, 4, False), (3, 4, False), (5, 4, False))
    world.run(at("now"))
    assert world.ids("a.t") == [1, 5]


@pytest.mark.parametrize(("seed", "runs"), [pytest.param(1, 7, marks=pytest.mark.landing), (2, 14), (3, 14)])
def test_drawn_changes_through_three_pipelines_are_those_of_one(world: Any, seed: int, runs: int) -> None:
    """The newest row of each key decides, whoever brings it: no two have one order."""
    drawn = random.Random(seed)
    names, orders = ("one", "two", "three"), drawn.sample(range(1, 1000), 200)
    newest: dict[int, tuple[int, bool]] = {}
    landed = set()
    for _ in range(runs):
        name = drawn.choice(names)
        rows = [(drawn.randrange(8), orders.pop(), drawn.random() < 0.5) for _ in range(drawn.randrange(1, 4))]
        arrive(world, name, *rows)
        pipeline = upserts(world, name)
        what = drawn.randrange(5)
        if what == 0:
            with dies_before_commit():
                world.run(pipeline)
        elif what == 1 and name in landed:
            shutil.rmtree(world.checkpoint(pipeline))
        elif what == 2:
            continue  # they wait for its next run
        world.run(pipeline, new_checkpoint=what == 1 and name in landed)
        landed.add(name)
    for name in names:
        world.run(upserts(world, name))
    for name in names:
        for id, n, gone in world.rows(f"a.{name}", "id", "n", "gone"):
            newest[id] = max(newest.get(id, (0, False)), (n, gone))
    wanted: Found = Counter((id, n) for id, (n, gone) in newest.items() if not gone)
    assert world.rows("a.t", "id", "n") == wanted


# one pipeline alone


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("key", ["at", "AT"])
@pytest.mark.cases(landing="at-True")
def test_a_key_may_have_the_name_of_what_is_kept_beside_it(world: Any, key: str, stored: bool) -> None:
    def arrives(n: int, gone: bool, *ids: int) -> None:
        world.fill("a.one", ids, **{key: "id", "n": f"{n}", "gone": str(gone).lower()})

    sink = world.sink("a.t").upsert(key, order_by="n", delete_when="gone", store_order=stored)
    one = (world.source("a.one").incremental(poll=1) >> sink).named("one")
    arrives(1, False, 1, 2)
    world.run(one)
    arrives(5, True, 2)
    arrives(7, False, 1)
    world.run(one)
    arrives(4, False, 1, 2)
    world.run(one)
    assert world.rows("a.t", "id") == Counter({(1,): 1})


@pytest.mark.parametrize("new_checkpoint", [False, True])
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.cases(landing="False-False")
def test_deletes_are_remembered_when_the_script_deletes_no_more(
    world: Any, history: bool, new_checkpoint: bool
) -> None:
    arrive(world, "one", (1, 1, False), (2, 1, False))
    world.run(upserts(world, "one", history=history))
    arrive(world, "one", (2, 5, True), (9, 5, True))
    world.run(upserts(world, "one", history=history))
    arrive(world, "one", (2, 4, False), (9, 4, False))
    world.run(upserts(world, "one", history=history, delete_when=None), new_checkpoint=new_checkpoint)
    if not history:
        assert world.ids("a.t") == [1]
        return
    ends = world.rows("a.t", "id", "valid_from", "valid_to")
    assert ends == Counter({(1, 1, None): 1, (2, 1, 4): 1, (2, 4, 5): 1, (9, 4, 5): 1})
