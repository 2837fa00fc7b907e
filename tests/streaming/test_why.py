"""`helios why` and `helios history` beside a journal that the test keeps of what each commit wrote."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from helios import Pipeline, expect
from helios.cli import main
from helios.cli.why import view_of
from helios.config import load
from helios.lineage.versions import Origin
from helios.lineage.why import Explained, Why, why
from helios.spark.replay.replay import Replay
from helios.table.commits import commits
from helios.table.readers import warehouses

pytestmark = pytest.mark.promise("why")

ROWS = pa.schema([("id", pa.int64()), ("n", pa.int64())])
MERGE = "write.merge.mode"
TARGETS: dict[str, Callable[[Any], Any]] = {
    "append-2": lambda sink: sink,
    "append-3": lambda sink: sink.format_version(3),
    "upsert-2": lambda sink: sink.format_version(2).upsert("id"),
    "rewrite-2": lambda sink: sink.format_version(2).table_properties({MERGE: "copy-on-write"}).upsert("id"),
    "upsert-3": lambda sink: sink.upsert("id"),
    "rewrite-3": lambda sink: sink.table_properties({MERGE: "copy-on-write"}).upsert("id"),
}


@pytest.fixture(autouse=True)
def settings(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder)
    (world.folder / "helios.toml").write_text(
        f'[catalogs.local]\ntype = "local"\npath = "{world.catalog.option("path")}"\n'
    )


def asked(world: Any, condition: str, table: str = "a.t") -> Why:
    return why(world.load(table), condition, view_of(load(world.folder)))


def told(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments), prog_name="helios")
    assert done.exit_code == 0, done.output
    return done.output


class Journal:
    """A pipeline with a quarantine, what is done with its tables, and what each commit of the target wrote.

    Attributes:
        wrote: The snapshot that wrote each row, by the row's number `n`, of which no other row has the same.
        made: Of each commit of the target: snapshot, pipeline, batch, rows added, rows removed.
        left: The numbers of rows that are in the quarantine.
    """

    def __init__(self, world: Any, target: str, seed: int) -> None:
        self.world, self.target, self.random = world, target, random.Random(seed)
        self.n, self.wrote, self.left = 0, dict[int, int](), set[int]()
        self.made: list[tuple[int, str | None, int | None, int, int]] = []
        self.rows: Counter[int] = Counter()
        self.limit = 100
        self.batches = self.replays = -1

    def pipeline(self) -> Pipeline:
        small = expect({"small": f"n % 100 < {self.limit}"}, on_fail="quarantine")
        sink = TARGETS[self.target](self.world.sink("a.t")).quarantine("a.bad")
        return (self.world.source("a.s").incremental() >> small >> sink).named("copy")

    def batch(self, size: int = 30, ids: int = 200) -> None:
        """A batch of rows whose keys were there before or not; a tenth of them is set aside."""
        self.limit = 90
        chosen = self.random.sample(range(ids), size)
        rows = [{"id": id, "n": self.n + index} for index, id in enumerate(chosen)]
        self.n += size
        arrow = pa.Table.from_pylist(rows, schema=ROWS)
        if not self.world.catalog.exists("a.s"):
            self.world.catalog.create_namespace("a")
            self.world.catalog.create_table("a.s", ROWS)
        self.world.load("a.s").iceberg.append(arrow)
        run = self.world.start(self.pipeline(), once=True)
        assert run.await_termination(900)
        self.left |= {row["n"] for row in rows if row["n"] % 100 >= self.limit}
        self.batches += 1
        self._note("copy", self.batches)

    def replay(self) -> None:
        self.limit = 100
        Replay(self.world.plan(self.pipeline()), self.world.spark).run()
        self.replays += 1
        if self.left:
            self._note("copy.replay", self.replays)
        self.left = set()

    def others(self) -> None:
        """A row of another writer, and one that it deletes."""
        self.world.sql(f"INSERT INTO local.a.t VALUES (CAST({1000 + self.n} AS BIGINT), CAST({self.n} AS BIGINT))")
        self.n += 1
        self._note(None, None)
        self.world.sql(f"DELETE FROM local.a.t WHERE n = {self.random.choice(sorted(self.rows))}")
        self._note(None, None)

    def compact(self) -> None:
        self.world.compact("a.t")
        self._note(None, None)

    def expire(self, keep: int) -> None:
        self.world.sql(
            "CALL local.system.expire_snapshots(table => 'a.t', older_than => TIMESTAMP '2099-01-01 00:00:00', "
            f"retain_last => {keep})"
        )

    def _note(self, pipeline: str | None, batch: int | None) -> None:
        head = self.world.load("a.t").current_snapshot().id
        if self.made and self.made[-1][0] == head:
            return  # it wrote nothing
        before, self.rows = self.rows, Counter(n for (n,) in self.world.rows("a.t", "n").elements())
        for n in self.rows - before:
            self.wrote[n] = head
        added, removed = (sum(some.values()) for some in (self.rows - before, before - self.rows))
        self.made.append((head, pipeline, batch, added, removed))

    # what is compared

    def compare(self, sample: int) -> Counter[str]:
        """Asks for rows, 20 at a time, and compares the answers with the journal."""
        verdicts: Counter[str] = Counter()
        numbers = self.random.sample(sorted(self.rows), min(sample, len(self.rows)))
        retained = {snapshot.id for snapshot in self.world.load("a.t").snapshots()}
        for begin in range(0, len(numbers), 20):
            some = numbers[begin : begin + 20]
            found = asked(self.world, f"n IN ({', '.join(map(str, some))})")
            assert (found.matches, sorted(row.version.row.values["n"] for row in found.rows)) == (
                len(some),
                sorted(some),
            )
            for row in found.rows:
                verdicts[self._verdict(row, retained)] += 1
        return verdicts

    def _verdict(self, row: Explained, retained: set[int]) -> str:
        n, origin = row.version.row.values["n"], row.version.origin
        expected = self.wrote[n]
        if origin.unknown is not None:
            moved = self.target.endswith("2") and self.world.load("a.t").snapshots()[0].operation != "append"
            assert expected not in retained or moved, f"{n}: {origin.unknown}"
            return "not known"
        assert origin == Origin((expected,)), f"{n} was written by {expected}: {row}"
        return "right"

    def compare_history(self) -> int:
        """Compares what `history` says of the retained commits with the journal."""
        found = commits(self.world.load("a.t"), warehouses([self.world.catalog]))
        said = [(c.snapshot, c.pipeline, c.batch, c.added, c.removed) for c in reversed(found)]
        assert said == self.made[-len(said) :]
        return len(said)


def life(journal: Journal, rounds: int) -> None:
    """Appends or upserts, rejected rows and their replays, other writers, compactions."""
    for number in range(rounds):
        journal.batch()
        if number % 3 == 1:
            journal.compact()
        if number % 4 == 2:
            journal.others()
        if number % 4 == 3:
            journal.replay()
            journal.batch()


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_thousand_rows_tell_where_they_come_from(world: Any, target: str) -> None:
    journal = Journal(world, target, seed=7)
    life(journal, 8)
    whole = journal.compare(90)
    assert whole == Counter(right=whole.total()), "nothing has expired"
    seen = journal.compare_history()
    journal.expire(5)
    expired = journal.compare(90)
    journal.batch()
    journal.compact()
    journal.compare_history()
    expired += journal.compare(90)
    print(
        f"{target}: {whole['right']} of {whole.total()} rows right with {seen} commits, then "
        f"{expired['right']} right and {expired['not known']} not known of {expired.total()}"
    )
