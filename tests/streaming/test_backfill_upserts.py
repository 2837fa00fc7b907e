"""Backfills of upserts by their commits: their keys get what the script makes of all batches from there on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from helios import Pipeline, rename, where, with_columns
from helios.errors import HeliosError, InputError, LeaseError, NotFound
from helios.plan.backfills import Ask
from helios.spark.backfill.backfill import Backfill
from helios.spark.backfill.result import Backfilled
from helios.spark.iceberg.transaction import Transaction

pytestmark = pytest.mark.promise("backfill")


class Row(NamedTuple):
    """A row of the source; `bad` is what the wrong script takes for good (1 to 3), or leaves out (4)."""

    key: int | None
    ord: int | None
    value: int
    gone: bool = False
    bad: int = 0


class Kept(NamedTuple):
    """A row of the target."""

    key: int
    ord: int | None
    value: int
    bad: int


SCHEMA = "key int, ord int, value int, gone boolean, bad int"
MODES: dict[str, dict[str, Any]] = {
    "by batch": {},
    "ordered": {"order_by": "ord"},
    "deletes": {"delete_when": "gone"},
    "copy-on-write": {"order_by": "ord"},
    "v2": {"order_by": "ord"},
}


@dataclass
class Case:
    """A pipeline whose first batches are made by a wrong script."""

    world: Any
    mode: str
    sink: Any = None

    def pipeline(self, *, right: bool) -> Pipeline:
        steps: Any = self.world.source("a.s").incremental()
        if right:  # rows that are bad go (1), have another value (2), another order (3), or come (4)
            steps = steps >> where("bad <> 1") >> with_columns(value="if(bad = 2, value + 1000, value)")
            steps = steps >> with_columns(ord="if(bad = 3, ord - 3, ord)", gone="gone AND bad <> 2")
        else:
            steps = steps >> where("bad <> 4")
        sink = self.sink or self.world.sink("a.t")
        sink = sink.write_mode("copy-on-write") if self.mode == "copy-on-write" else sink
        sink = sink.format_version(2) if self.mode == "v2" else sink
        made: Pipeline = steps >> sink.upsert("key", **MODES[self.mode])
        return made

    def land(self, *appends: Sequence[Row], right: bool = False) -> None:
        """A batch of several appends to the source."""
        for rows in appends:
            self.append(rows)
        self.world.run(self.pipeline(right=right))

    def append(self, rows: Sequence[Row]) -> None:
        world = self.world
        world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
        write = world.spark.createDataFrame(list(rows), SCHEMA).coalesce(1).writeTo("local.a.s")
        if world.catalog.exists("a.s"):
            write.append()
        else:
            write.using("iceberg").create()

    def backfill(self, commits: str, **options: Any) -> Backfilled:
        dry_run = options.pop("dry_run", False)
        plan = self.world.plan(self.pipeline(right=True))
        return Backfill(plan, self.world.spark, Ask(commits=commits), **options).run(dry_run=dry_run)

    def held(self) -> Counter[tuple[Any, ...]]:
        rows: Counter[tuple[Any, ...]] = self.world.rows("a.t", "key", "ord", "value", "bad")
        return rows


@dataclass
class Reference:
    """What an upsert makes of its rows: a dict that takes one row after the other."""

    mode: str
    table: dict[int, Kept] = field(default_factory=dict)

    def batch(self, rows: Sequence[Row], *, right: bool, only: set[int] | None = None) -> None:
        newest: dict[int, Row] = {}
        for row in given(rows, right=right):
            old = newest.get(row.key or 0)
            if old is None or not late(row.ord, old.ord):
                newest[row.key or 0] = row
        for key, row in newest.items():
            if only is not None and key not in only:
                continue
            if "delete_when" in MODES[self.mode] and row.gone:
                self.table.pop(key, None)
            elif "order_by" not in MODES[self.mode] or key not in self.table or not late(row.ord, self.table[key].ord):
                self.table[key] = Kept(key, row.ord, row.value, row.bad)


def late(order: int | None, known: int | None) -> bool:
    return known is not None and (order is None or order < known)


def given(rows: Sequence[Row], *, right: bool) -> list[Row]:
    """The rows that a script gives."""
    if not right:
        return [row for row in rows if row.bad != 4]
    made = [row for row in rows if row.bad != 1]
    made = [row._replace(value=row.value + 1000, gone=False) if row.bad == 2 else row for row in made]
    return [row._replace(ord=row.ord - 3) if row.bad == 3 and row.ord is not None else row for row in made]


def repaired(mode: str, batches: Sequence[tuple[Sequence[Row], bool]], first: int, last: int) -> Counter[Any]:
    """The table after a backfill: the keys that the batches changed, or would have, are made anew from there on."""
    states = [Reference(mode)]
    for rows, right in batches:
        states.append(Reference(mode, dict(states[-1].table)))
        states[-1].batch(rows, right=right)
    before, after = states[first].table, states[last + 1].table
    touched = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    touched |= {row.key or 0 for rows, _ in batches[first : last + 1] for row in given(rows, right=True)}
    anew = Reference(mode, {key: row for key, row in before.items() if key in touched})
    for rows, _ in batches[first:]:
        anew.batch(rows, right=True, only=touched)
    kept = [row for key, row in states[-1].table.items() if key not in touched]
    return Counter(tuple(row) for row in (*kept, *anew.table.values()))


def drawn(chance: random.Random, mode: str, number: int) -> list[list[Row]]:
    """The rows of a batch, by append; ordered ones have keys several times, ties and nulls."""
    count = chance.choice([4, 12, 30])
    ordered = "order_by" in MODES[mode]
    bads = chance.choice([[0, 0, 1, 2, 3, 4], [0], [4]])  # of the last one the wrong script writes nothing
    keys = [chance.randrange(40) for _ in range(count)] if ordered else chance.sample(range(40), count)

    def row(key: int) -> Row:
        order = None if chance.random() < 0.1 else number * 2 + chance.randrange(-6, 4)
        return Row(key, order, chance.randrange(1000), chance.random() < 0.3, chance.choice(bads))

    rows = [row(key) for key in keys]
    cut = chance.randrange(1, count)
    return [rows[:cut], rows[cut:]]


def draw(mode: str, seed: int) -> Any:
    long = seed > 0 or mode not in ("ordered", "deletes")
    return pytest.param(mode, seed, id=f"{mode} {seed}", marks=[pytest.mark.slow] * long)


DRAWS = [draw(mode, seed) for mode in MODES for seed in range(12)]


@pytest.mark.cases(short="ordered 0")
@pytest.mark.parametrize(("mode", "seed"), DRAWS)
def test_drawn_histories(world: Any, mode: str, seed: int) -> None:
    """The table after a backfill is that of a reference in plain Python; a second one changes nothing."""
    chance = random.Random(f"{mode} {seed}")
    case, batches, committed = Case(world, mode), list[tuple[list[Row], bool]](), list[int]()
    mended = chance.randrange(3, 7)
    for number in range(7 if seed else 5):
        appends = drawn(chance, mode, number)
        if not number:
            appends = [[Row(key, 0, key) for key in range(0, 40, 3)]]
        right = number >= mended
        case.land(*appends, right=right)
        batches.append(([row for rows in appends for row in rows], right))
        made = [one.summary.get("helios.batch") for one in world.catalog.load("a.t").iceberg.snapshots() if one.summary]
        if str(number) in made:
            committed.append(number)
        if chance.random() < 0.25:
            world.compact("a.t")
    first, last = sorted((chance.choice(committed), chance.choice(committed)))
    # What a commit has read begins where the one before it ended: batches that wrote nothing are a part of it.
    begin = max((one + 1 for one in committed if one < first), default=0)
    wanted = repaired(mode, batches, begin, last)
    dry = case.backfill(f"{first}..{last}", dry_run=True)
    done = case.backfill(f"{first}..{last}")
    assert [(one.before, one.after) for one in done.slices] == [(one.before, one.after) for one in dry.slices]
    assert case.held() == wanted
    again = case.backfill(f"{first}..{last}")
    assert [(one.before, one.after) for one in again.slices] == [(0, 0)]
    rows = [Row(key, 90 + key % 2, 5000 + key) for key in range(0, 60, 5)]
    case.land(rows, right=True)  # the pipeline goes on
    after = {row[0]: row for row in wanted}
    assert case.held() == Counter(
        {**after, **{row.key: (row.key, row.ord, row.value, row.bad) for row in rows}}.values()
    )


@pytest.mark.landing
def test_a_commit_is_repaired_beside_the_pipeline(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that comes while rows are written has done its keys again, and its rows stay."""
    case = Case(world, "by batch")
    case.land([Row(1, 1, 10), Row(2, 1, 20), Row(3, 1, 30)])
    case.land([Row(1, 2, 11, bad=1), Row(2, 2, 21, bad=2), Row(4, 2, 40, bad=1), Row(5, 2, 50)])
    case.land([Row(3, 3, 31)], right=True)
    sql, landing, came = Transaction.sql, list[bool](), [[Row(1, 5, 12)], [Row(8, 1, 80)]]

    def beside(self: Transaction, *arguments: Any) -> None:
        sql(self, *arguments)
        if came and not landing:  # after the rows are written, and before they are committed
            landing.append(True)  # the pipeline writes by this, too
            case.land(came.pop(0), right=True)
            landing.clear()

    monkeypatch.setattr(Transaction, "sql", beside)
    done = case.backfill("1")
    monkeypatch.undo()
    assert [(one.slice.split()[1], one.before, one.after, one.again) for one in done.slices] == [("1", 2, 1, 1)]
    now = {(1, 5, 12, 0), (2, 2, 1021, 2), (3, 3, 31, 0), (5, 2, 50, 0), (8, 1, 80, 0)}
    assert case.held() == Counter(now)


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_repair_that_was_killed(world: Any, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Started again it is done once, and the pipeline is not locked out."""
    case = Case(world, "ordered")
    case.land([Row(1, 1, 10), Row(2, 1, 20)])
    case.land([Row(1, 9, 11, bad=3), Row(2, 2, 21, bad=1)])
    case.land([Row(1, 7, 12)])  # late by the wrong order
    assert case.held() == Counter({(1, 9, 11, 3): 1, (2, 2, 21, 1): 1})
    commit = Transaction.commit

    def killed(self: Transaction) -> None:
        if at == "after":
            commit(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        case.backfill("1")
    monkeypatch.undo()
    done = case.backfill("1")
    wanted = Counter({(1, 7, 12, 0): 1, (2, 1, 20, 0): 1})
    assert case.held() == wanted
    assert sum(one.after for one in done.slices) == (2 if at == "before" else 0)
    case.land([Row(2, 1, 22)], right=True)
    assert case.held() == Counter({(1, 7, 12, 0): 1, (2, 1, 22, 0): 1})


def test_commits_that_are_refused(world: Any) -> None:
    """What cannot be seen again is refused by name, and nothing is written."""
    case = Case(world, "ordered")
    case.land([Row(1, 1, 10), Row(2, 1, 20)])
    case.land([Row(1, 2, 11, bad=2), Row(2, 2, 21)])
    case.land([Row(2, 3, 22, bad=2)])
    world.sql("UPDATE local.a.t SET value = 99 WHERE key = 2")
    held = case.held()
    for commits in ("1", "2"):
        with pytest.raises(InputError, match="of another writer, has changed the same keys since"):
            case.backfill(commits)
    assert case.held() == held
    case.land([Row(1, 3, 12, bad=2), Row(5, 1, 50)])
    case.backfill("3")
    with pytest.raises(InputError, match="of another writer, has changed the same keys since"):
        case.backfill("1")
    with pytest.raises(NotFound, match="has no commit '17' of the pipeline"):
        case.backfill("17")
    world.expire("a.t")
    with pytest.raises(HeliosError, match=r"has expired|cannot be repaired: the state before|is not known"):
        case.backfill("3")


def test_repairs_of_repairs(world: Any) -> None:
    """Commits behind repaired ones are refused, as the state before them was wrong; both together are not."""
    case = Case(world, "by batch")
    for number in range(3):
        case.land([Row(1, number, number, bad=2), Row(10 + number, 1, 5, bad=1)])
    case.backfill("0")
    with pytest.raises(InputError, match=r"were repaired since.*repair them together: --commits \d+\.\.\d+"):
        case.backfill("1")
    case.backfill("0..2")
    assert case.held() == Counter({(1, 2, 1002, 2): 1})


REFUSED = {
    "order and deletes": ({"order_by": "ord", "delete_when": "gone"}, "the deletes that it remembers are not in the"),
    "another order": ({"order_by": "ord + 1"}, r"it does not store ord \+ 1"),
    "versions": ({"order_by": "ord", "history": True}, "rows that it has replaced are not put back"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_upserts_that_are_refused(world: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given, why = REFUSED[name]
    monkeypatch.setitem(MODES, "ordered", given)
    case = Case(world, "ordered")
    case.land([Row(1, 1, 10)])
    with pytest.raises(InputError, match=why):
        case.backfill("0")


def test_a_rename_that_has_not_run(world: Any) -> None:
    """A run renames the column, as the fix says; then the commits can be repaired."""
    case = Case(world, "by batch")
    case.land([Row(1, 1, 10, bad=2)])
    sink = world.sink("a.t").evolve_schema("full").renames({"value": "amount"}).upsert("key")
    renamed: Pipeline = case.pipeline(right=True).stream >> rename({"value": "amount"}) >> sink
    repair = Backfill(world.plan(renamed), world.spark, Ask(commits="0"))
    with pytest.raises(InputError, match=r"the next run will rename or drop value(.|\n)*run the pipeline once"):
        repair.run()
    case.append([Row(2, 1, 20)])
    world.run(renamed)
    Backfill(world.plan(renamed), world.spark, Ask(commits="0")).run()
    assert world.rows("a.t", "key", "amount") == Counter({(1, 1010): 1, (2, 20): 1})


def test_late_rows_beside_a_running_pipeline(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordered pipeline must be stopped, and cannot be started meanwhile: its late rows leave no trace."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3)])
    sql, met = Transaction.sql, list[str]()

    def beside(self: Transaction, *arguments: Any) -> None:
        sql(self, *arguments)
        with pytest.raises(LeaseError) as told:
            case.land([Row(1, 7, 11)])
        met.append(str(told.value))

    monkeypatch.setattr(Transaction, "sql", beside)
    case.backfill("0")
    monkeypatch.undo()
    assert len(met) == 1
    assert case.held() == Counter({(1, 6, 10, 3): 1})

    def during(self: Transaction, *arguments: Any) -> None:
        with pytest.raises(LeaseError, match="is running, and its late rows and its deletes of missing keys leave no"):
            case.backfill("0")
        sql(self, *arguments)

    monkeypatch.setattr(Transaction, "sql", during)
    case.land([Row(1, 5, 12)])
    monkeypatch.undo()


def test_rejected_rows_of_an_upsert(world: Any) -> None:
    """Rows without a key stay in the quarantine, and a script that rejects others is refused."""
    case = Case(world, "ordered", world.sink("a.t").quarantine("a.bad"))
    case.land([Row(1, 1, 10), Row(None, 1, 20)])
    case.land([Row(1, 2, 11, bad=1), Row(2, 2, 21), Row(None, 2, 22)])
    case.backfill("1")
    assert case.held() == Counter({(1, 1, 10, 0): 1, (2, 2, 21, 0): 1})
    assert world.rows("a.bad").total() == 2
    case.land([Row(3, 1, 30, bad=1), Row(None, 3, 31, bad=2)])
    with pytest.raises(InputError, match=r"does not reject 1 row of local\.a\.bad, or rejects"):
        case.backfill("2")  # by the mended script the row that was rejected is another one


def test_a_second_repair_takes_the_rows_of_the_first_one_away(world: Any) -> None:
    """The script of the first repair was wrong, too: its keys are not in the commits that are repaired."""
    case = Case(world, "by batch")

    def some(condition: str) -> Pipeline:
        made: Pipeline = world.source("a.s").incremental() >> where(condition) >> world.sink("a.t").upsert("key")
        return made

    for rows in ([Row(1, 1, 10)], [Row(2, 1, 20), Row(9, 1, 90)]):
        case.append(rows)
        world.run(some("key < 5"))
    for condition, keys in (("key < 100", {1, 2, 9}), ("key < 5", {1, 2})):
        Backfill(world.plan(some(condition)), world.spark, Ask(commits="1")).run()
        assert {row[0] for row in case.held()} == keys


@pytest.mark.parametrize("appends", [False, True])
def test_the_first_commit_behind_a_rollback(world: Any, appends: bool) -> None:
    """A new checkpoint has continued behind a lost batch, whose rows do not come back."""
    case = Case(world, "by batch")
    if appends:
        rows = world.source("a.s").incremental()
        case.pipeline = lambda *, right: (  # type: ignore[method-assign]
            rows >> with_columns(value="value + 1000" if right else "value") >> world.sink("a.t")
        )
    case.land([Row(1, 1, 10)])
    case.land([Row(7, 1, 70), Row(1, 2, 11)])
    first = world.load("a.t").snapshots()[0]
    world.sql(f"CALL local.system.rollback_to_snapshot('a.t', {first.id})")
    world.run(case.pipeline(right=False), new_checkpoint=True)
    for row in (Row(2, 1, 20, bad=2), Row(3, 1, 30, bad=2)):
        case.land([row])
        snapshot = world.load("a.t").iceberg.current_snapshot()
        assert snapshot is not None
        case.backfill(str(snapshot.snapshot_id))
        held = {found[0]: found[2] for found in case.held().elements()}
        assert 7 not in held
        assert held[row.key] == row.value + 1000
    assert case.held().total() == 3
