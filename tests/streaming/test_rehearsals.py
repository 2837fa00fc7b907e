"""`helios rehearse`: what a changed script would have made of past commits, beside a recompute in plain Python."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helios import Files, aggregate, expect, join, select, where, with_columns
from helios.errors import HeliosError, InputError
from helios.plan.backfills import Ask
from helios.plan.past import committed_history
from helios.spark.backfill.backfill import Backfill
from helios.spark.rehearse.rehearsal import Rehearsal
from helios.spark.rehearse.report import Counts, Rehearsed, Rejects
from tests.suite.waiting import PATIENCE

pytestmark = pytest.mark.promise("rehearsals")

Row = Mapping[str, Any]


def rehearse(world: Any, pipeline: Any, *, last: int = 100, keys: Sequence[str] = (), most: int = 10**6) -> Rehearsed:
    """Rehearses a pipeline; of the test's folder, with its catalog, tables and checkpoints, no byte may change."""
    plan = world.plan(pipeline)
    history = committed_history(plan)
    before = checksums(world.folder)
    found = Rehearsal(
        plan=plan,
        spark=world.spark,
        history=history,
        commits=history.batches[-last:],
        keys=keys,
        max_rows=most,
        samples=10**6,
    ).run()
    assert checksums(world.folder) == before
    return found


def run(world: Any, pipeline: Any) -> None:
    """Runs a pipeline over many commits."""
    assert world.start(pipeline, once=True).await_termination(3 * PATIENCE)


def checksums(folder: Path) -> dict[str, str]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def fill(world: Any, batches: Sequence[Sequence[Row]], table: str = "a.s") -> None:
    """Appends each batch in a commit of its own."""
    for rows in batches:
        df = world.spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).coalesce(1)
        world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
        writer = df.writeTo(f"local.{table}")
        writer.append() if world.catalog.exists(table) else writer.using("iceberg").create()


SCHEMA = "id bigint, at bigint, amount bigint, kind string, gone boolean"


def orders(chance: random.Random, commits: int, rows: int = 6) -> list[list[Row]]:
    """Batches of rows with few keys; `at` is an order without ties."""
    times = chance.sample(range(10_000), commits * rows)
    return [
        [
            {"id": key, "at": times.pop(), "amount": chance.randint(0, 99), "kind": chance.choice("xyz"), "gone": False}
            for key in chance.sample(range(12), rows)
        ]
        for _ in range(commits)
    ]


# an unchanged script


MERGE = (
    "MERGE INTO target t USING (SELECT kind, sum(amount) AS amount FROM batch GROUP BY kind) s ON t.kind = s.kind "
    "WHEN MATCHED THEN UPDATE SET amount = t.amount + s.amount WHEN NOT MATCHED THEN INSERT *"
)
MODES = (
    "append", "upsert", "unordered", "deleting", "history", "partitions", "filter", "delete", "merge", "overwrite",
    "again",
)  # fmt: skip


def pipeline_of(world: Any, mode: str) -> Any:
    """A pipeline of a write mode over the source; one that follows it has a batch for each commit."""
    state, sink = world.source("a.s"), world.sink(f"a.{mode}")
    rows = state.incremental(max_files=1)
    made = {
        "append": rows >> sink,
        "upsert": rows >> sink.upsert("id", order_by="at"),
        "unordered": rows >> sink.upsert("id"),
        "deleting": rows >> sink.upsert("id", order_by="at", delete_when="amount < 20"),
        "history": rows >> sink.upsert("id", order_by="at", history=True),
        "partitions": rows >> sink.partition_by("kind").overwrite_partitions(),
        "filter": rows >> where("kind = 'x'") >> sink.overwrite("kind = 'x'"),
        "delete": rows >> select("id", "at") >> sink.delete("id", "at"),
        "merge": rows >> select("kind", "amount") >> sink.merge_sql(MERGE),
        "overwrite": state >> sink.overwrite(),
        "again": state >> sink.upsert("id", order_by="at"),
    }
    return made[mode].named(mode)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", MODES)
def test_an_unchanged_script_makes_no_difference(world: Any, mode: str) -> None:
    pipeline = pipeline_of(world, mode)
    batches = orders(random.Random(mode), 20)
    if mode == "delete":
        fill(world, batches, "a.delete")
    if mode == "merge":
        world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
        world.sql("CREATE TABLE local.a.merge (kind string, amount bigint) USING iceberg")
    if pipeline.stream.source.streaming:
        fill(world, batches)
        run(world, pipeline)
    else:
        for batch in batches:
            fill(world, [batch])
            world.run(pipeline)
    found = rehearse(world, pipeline)
    assert not found.has_differences, found
    assert [one.unread or one.failed for one in found.commits] == [""] * len(found.commits)
    assert 8 <= len(found.commits) <= 20  # a batch whose rows are all late, or of nothing, is no commit
    found = rehearse(world, pipeline, last=3)
    assert (sum(one.snapshot is not None for one in found.commits), found.has_differences) == (3, False), found


@pytest.mark.timeout(900)
def test_what_an_upsert_remembered_then(world: Any) -> None:
    batches = orders(random.Random("remembered"), 20)
    for batch, rows in enumerate(batches):  # each batch deletes a key of its own, so that all have a delta
        rows.append({"id": 100 + batch, "at": 10_000 + batch, "amount": 1, "kind": "x", "gone": False})
    fill(world, batches)
    sink = world.sink("a.t").upsert("id", order_by="at", delete_when="amount < 60")
    pipeline = (world.source("a.s").incremental(max_files=1) >> sink).named("deleting")
    run(world, pipeline)
    assert not rehearse(world, pipeline, last=12).has_differences
    [keys] = (world.folder / ".helios/warehouse/_helios/keys").iterdir()
    [base] = (keys / "base").iterdir()
    folded = sorted((keys / "delta").iterdir(), key=lambda delta: int(delta.name))
    folded = [delta for delta in folded if int(delta.name) <= int(base.name)]
    # Files of one state have names drawn at random, so that batches come in any order, and some are no commit.
    # A run deletes them an hour after they were folded; this one dies after the first, and the next one goes on.
    for deleted in (folded[:1], folded[1:]):
        for delta in deleted:
            shutil.rmtree(delta)
        with pytest.raises(InputError, match=r"before batch \d+ have since been merged"):
            rehearse(world, pipeline, last=12)
    assert not rehearse(world, pipeline, last=3).has_differences


# edits, beside a recompute


EDITS: Mapping[str, Callable[[random.Random], tuple[Any, Callable[[Row], Row | None]]]] = {
    "filter": lambda chance: _filter(chance.randint(0, 99)),
    "rounding": lambda chance: _rounding(),
    "dropped": lambda chance: _dropped(chance.randint(2, 5)),
    "constant": lambda chance: _constant(chance.choice("xyz")),
}
"""An edit of the steps, and the same of a row in Python; None leaves it out."""


def _filter(least: int) -> Any:
    return where(f"amount >= {least}"), lambda row: row if row["amount"] >= least else None


def _rounding() -> Any:
    return with_columns(amount="cast(amount div 10 * 10 as bigint)"), lambda row: {
        **row, "amount": row["amount"] // 10 * 10
    }  # fmt: skip


def _dropped(by: int) -> Any:
    return where(f"id % {by} != 0"), lambda row: row if row["id"] % by else None


def _constant(kind: str) -> Any:
    return with_columns(kind=f"CASE WHEN id < 6 THEN '{kind}' ELSE kind END"), lambda row: {
        **row, "kind": kind if row["id"] < 6 else row["kind"]
    }  # fmt: skip


def appended(batches: Sequence[Sequence[Row]], edit: Callable[[Row], Row | None]) -> list[Counter[Any]]:
    """What each batch appends."""
    return [Counter(tuple(e.values()) for row in batch if (e := edit(row)) is not None) for batch in batches]


def upserted(
    held: Mapping[int, Row], batches: Sequence[Sequence[Row]], edit: Callable[[Row], Row | None], order: str
) -> dict[int, Row]:
    """A table after upserts by `id`: the newest row of each key, and of equal ones the later."""
    state = dict(held)
    for batch in batches:
        for row in batch:
            made = edit(row)
            if made is not None and (made["id"] not in state or made[order] >= state[made["id"]][order]):
                state[made["id"]] = made
    return state


@pytest.mark.parametrize("seed", range(15))
def test_an_edited_append_gives_what_a_recompute_says(world: Any, seed: int) -> None:
    chance = random.Random(seed)
    batches = orders(chance, 5)
    fill(world, batches)
    rows = world.source("a.s").incremental(max_files=1)
    run(world, (rows >> world.sink("a.t")).named("copy"))
    last = chance.randint(1, 5)
    step, edit = EDITS[chance.choice(list(EDITS))](chance)
    extra = chance.random() < 0.3
    steps = step >> with_columns(twice="id * 2") if extra else step
    found = rehearse(world, (rows >> steps >> world.sink("a.t")).named("copy"), last=last)
    before, after = appended(batches, lambda row: row), appended(batches, edit)
    each = [(sum((b - a).values()), sum((a - b).values())) for a, b in zip(before, after, strict=True)][-last:]
    assert [(one.differs.added, one.differs.missing) for one in found.commits] == each
    gone, come = Counter[Any](), Counter[Any]()
    for a, b in list(zip(before, after, strict=True))[-last:]:
        gone, come = gone + a, come + b
    assert multiset(found.added) == come - gone
    assert multiset(found.missing) == gone - come
    assert found.columns == (("+ twice bigint",) if extra else ())


@pytest.mark.parametrize("seed", range(15))
def test_an_edited_upsert_gives_what_a_recompute_says(world: Any, seed: int) -> None:
    chance = random.Random(100 + seed)
    batches = orders(chance, 6)
    fill(world, batches)
    rows = world.source("a.s").incremental(max_files=1)
    run(world, (rows >> world.sink("a.t").upsert("id", order_by="at")).named("newest"))
    last = chance.randint(1, 6)
    name = chance.choice([*EDITS, "order"])
    step, edit = (None, lambda row: row) if name == "order" else EDITS[name](chance)
    order = "amount" if name == "order" else "at"
    flow = rows if step is None else rows >> step
    found = rehearse(world, (flow >> world.sink("a.t").upsert("id", order_by=order)).named("newest"), last=last)
    states = [upserted({}, batches[:count], lambda row: row, "at") for count in range(7)]
    # A batch whose rows are all late is no commit; it is read again with the commit after it.
    commits = [count for count in range(1, 7) if states[count] != states[count - 1]]
    start = [0, *commits][-last - 1] if last <= len(commits) else 0
    before = states[-1]
    after = upserted(states[start], batches[start:], edit, order)
    assert {row["id"]: row for row in found.added} == {k: after[k] for k in after.keys() - before.keys()}
    assert {row["id"]: row for row in found.missing} == {k: before[k] for k in before.keys() - after.keys()}
    both = {k for k in before.keys() & after.keys() if before[k] != after[k]}
    assert {one["id"]: (one, two) for one, two in found.changed} == {k: (before[k], after[k]) for k in both}
    assert found.differs == Counts(added=len(found.added), missing=len(found.missing), changed=len(found.changed))


def multiset(rows: Iterable[Row]) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in rows)


# what a rehearsal reads, and what it says


@pytest.mark.landing
def test_a_loosened_filter_fills_batches_that_wrote_nothing(world: Any) -> None:
    rows = world.source("a.s").incremental()

    def copy(condition: str) -> Any:
        return (rows >> where(condition) >> world.sink("a.t")).named("copy")

    for ids in ([1, 2], [3, 50], [40, 5], [51], [200]):
        world.fill("a.s", ids)
        world.run(copy("id < 10"))
    found = rehearse(world, copy("id < 10"))
    assert not found.has_differences, found
    assert [one.now for one in found.commits] == [2, 1, 1, 0]
    found = rehearse(world, copy("id < 100"))
    assert found.differs == Counts(added=3)
    assert [one.differs.added for one in found.commits] == [0, 1, 1, 1]
    assert found.added == [{"id": 40}, {"id": 50}, {"id": 51}]
    assert found.steps[0] == "- where(id < 10)"
    assert found.steps[1].startswith("+ where(id < 100)  (")


def test_replaced_rows_may_have_maps_inside_of_structs(world: Any) -> None:
    followed = world.source("a.s").incremental()

    def copy(amount: str) -> Any:
        made = with_columns(kind="id % 2", nested="named_struct('tags', map('a', id))", amount=amount)
        return (followed >> made >> world.sink("a.t").partition_by("kind").overwrite_partitions()).named("copy")

    for ids in ([1, 2], [3], [4]):
        world.fill("a.s", ids)
        world.run(copy("1"))
    assert not rehearse(world, copy("1")).has_differences
    found = rehearse(world, copy("if(id = 4, 2, 1)"))
    assert [one.failed or one.unread for one in found.commits] == ["", "", ""]
    assert [one.differs for one in found.commits] == [Counts(), Counts(), Counts(added=1, missing=1)]


def test_rejected_rows_are_counted_by_expectation(world: Any) -> None:
    rows = world.source("a.s").incremental()

    def checked(most: int) -> Any:
        step = expect({"small": f"id < {most}"}, on_fail="quarantine")
        return (rows >> step >> world.sink("a.t").quarantine("a.rejected")).named("checked")

    for ids in ([1, 20], [2, 30, 40]):
        world.fill("a.s", ids)
        world.run(checked(10))
    found = rehearse(world, checked(10))
    assert [one.failed for one in found.commits] == ["", ""]
    assert not found.has_differences, found
    found = rehearse(world, checked(25))
    assert [(one.before, one.now) for one in found.rejects] == [(3, 0), (0, 2)] or found.rejects == (
        Rejects(step=found.rejects[0].step, before=3, now=2),
    )
    assert found.added == [{"id": 20}]


def test_a_join_is_read_at_its_pin(world: Any) -> None:
    world.fill("a.names", [1, 2], name="concat('n', id)")
    rows = world.source("a.s").incremental()

    def named(name: str) -> Any:
        return (
            rows >> join(world.source("a.names"), on="id") >> select("id", f"{name} AS name") >> world.sink("a.t")
        ).named("n")

    for ids in ([1], [2]):
        world.fill("a.s", ids)
        world.run(named("name"))
    world.sql("DELETE FROM local.a.names")
    assert not rehearse(world, named("name")).has_differences
    assert rehearse(world, named("upper(name)")).differs == Counts(added=2, missing=2)
    assert rehearse(world, named("upper(name)"), keys=["id"]).differs == Counts(changed=2)
    with pytest.raises(InputError, match="--key no"):
        rehearse(world, named("name"), keys=["no"])


def test_a_view_is_compared_by_its_groups(world: Any) -> None:
    fill(world, [[{"id": n, "at": n, "amount": n, "kind": "xyz"[n % 3], "gone": False} for n in range(9)]])
    rows = world.source("a.s").incremental().changes(keys="id")

    def totals(what: str) -> Any:
        return (rows >> aggregate("kind", total=what) >> world.sink("a.t").upsert("kind")).named("totals")

    world.run(totals("sum(amount)"))
    world.sql("UPDATE local.a.s SET amount = 100 WHERE id = 3")
    world.run(totals("sum(amount)"))
    world.sql("DELETE FROM local.a.s WHERE kind = 'y'")
    world.run(totals("sum(amount)"))
    assert not rehearse(world, totals("sum(amount)")).has_differences
    found = rehearse(world, totals("max(amount)"), last=2)
    assert found.changed == [({"kind": "x", "total": 106}, {"kind": "x", "total": 100})]


def test_a_file_that_is_gone_is_named_and_the_rest_goes_on(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()

    def copy(condition: str) -> Any:
        rows = Files.source(str(folder), "csv", schema="id bigint").incremental()
        return (rows >> where(condition) >> world.sink("a.t")).named("copy")

    for number in range(4):
        (folder / f"{number}.csv").write_text(f"id\n{number}\n{number + 10}\n")
        world.run(copy("id < 10"))
    assert not rehearse(world, copy("id < 10")).has_differences
    (folder / "1.csv").unlink()
    found = rehearse(world, copy("id < 12"))
    assert ["1.csv" in one.unread for one in found.commits] == [False, True, False, False]
    assert found.added == [{"id": 10}]
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(InputError, match="none of these commits of copy can be read again"):
        rehearse(world, copy("id < 12"))


def test_an_upsert_begins_behind_what_has_expired(world: Any) -> None:
    rows = world.source("a.s").incremental(max_files=1)
    batches = orders(random.Random(1), 5)
    pipeline = (rows >> world.sink("a.t").upsert("id", order_by="at")).named("newest")
    for part in (batches[:2], batches[2:4], batches[4:]):
        fill(world, part)
        world.run(pipeline)
    world.expire("a.s")
    found = rehearse(world, pipeline)
    assert [bool(one.unread) for one in found.commits] == [True, True, True, True, False], found.commits
    assert all("expired" in one.unread for one in found.commits[:4])
    assert not found.has_differences


def test_a_script_that_fails_says_on_which_commit(world: Any) -> None:
    rows = world.source("a.s").incremental()
    plain = (rows >> world.sink("a.t")).named("copy")
    for ids in ([1], [20], [2]):
        world.fill("a.s", ids)
        world.run(plain)
    strict = (rows >> expect({"small": "id < 10"}, on_fail="fail") >> world.sink("a.t")).named("copy")
    found = rehearse(world, strict)
    assert ["small" in one.failed for one in found.commits] == [False, True, False]
    assert found.has_differences
    assert not found.differs


def test_rows_bound_it_and_others_are_named(world: Any) -> None:
    rows = world.source("a.s").incremental()
    pipeline = (rows >> world.sink("a.t")).named("copy")
    for ids in ([1, 2], [3, 4], [5, 6]):
        world.fill("a.s", ids)
        world.run(pipeline)
    world.sql("DELETE FROM local.a.t WHERE id = 1")
    found = rehearse(world, pipeline, most=4)
    assert [one.unread for one in found.commits] == ["", "--rows 4 was reached", "--rows 4 was reached"]
    assert any("others have removed rows since (another writer)" in note for note in found.notes)
    assert not found.differs


def test_a_backfill_of_the_pipeline_is_not_of_others(world: Any) -> None:
    rows = world.source("a.s").incremental()
    world.fill("a.s", [1, 2, 3], day="'2026-01-05'")
    world.run((rows >> with_columns(value="id * 2") >> world.sink("a.t")).named("copy"))
    steps = rows >> with_columns(value="id * 3")
    mended = (steps >> world.sink("a.t")).named("copy")
    done = Backfill(world.plan(mended), world.spark, Ask(where="day = '2026-01-05'", by="day")).run()
    assert sum(one.after for one in done.slices) == 3
    found = rehearse(world, mended, keys=["id"])
    assert found.differs == Counts(changed=3)
    [note] = [note for note in found.notes if "since" in note]
    backfill = f"a backfill of the pipeline has replaced rows since (snapshot {done.slices[-1].snapshot}): "
    assert note.startswith(f"{backfill}the rows that each commit added are compared")
    world.sql("DELETE FROM local.a.t WHERE id = 1")
    [note, others] = [note for note in rehearse(world, mended, keys=["id"]).notes if "since" in note]
    assert note.startswith(backfill)
    assert others.startswith("others have removed rows since (another writer): ")
    upsert = (steps >> world.sink("a.t").upsert("id", order_by="day")).named("copy")
    [note, others] = [note for note in rehearse(world, upsert).notes if "since" in note or "later" in note]
    assert note.startswith(f"{backfill}what it changed is left out")
    assert others.startswith("1 later commit is of others (another writer): ")


def test_errors_name_the_real_table(world: Any) -> None:
    rows = world.source("a.s").incremental()
    world.fill("a.s", [1])
    world.run((rows >> world.sink("a.t")).named("copy"))
    with pytest.raises(HeliosError, match=r"does not fit local\.a\.t ") as error:
        rehearse(world, (rows >> with_columns(z="NULL") >> world.sink("a.t")).named("copy"))
    assert "rehearsal" not in str(error.value)
