"""Expectations by the columnar engine beside Spark: the same rows to the bit, the same counts, the same errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helios import Files, Stream, expect, where, with_columns
from helios.errors import HeliosError
from helios.spark.iceberg.transaction import Transaction
from tests.streaming.native_cases import KINDS, Expressions, fill, rows_of, scanned, table
from tests.streaming.test_native import CASES, evaluated

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("engine")]

ENGINES = {"native": "require", "spark": "off"}


def told(world: Any) -> list[str]:
    return [event.message for event in world.events if event.kind == "noted"]


def use(world: Any, setting: str) -> None:
    (world.folder / "helios.toml").write_text(f'[spark]\nnative = "{setting}"\n')


def failed(run: Any) -> int:
    count: int = run.metrics().records_failed
    return count


# drawn pipelines


class Case:
    """Drawn rows, and a drawn pipeline over them.

    Args:
        world: The tests' world.
        seed: What draws.
    """

    def __init__(self, world: Any, seed: int) -> None:
        self.world, self.source = world, f"a.e{seed}"
        random = Random(seed)
        kinds = [random.choice(KINDS) for _ in range(random.randint(1, 5))] + ["int"]
        rows = table(random, kinds, random.choice((1, 20, 60, 60)))
        fill(world, self.source, rows)
        draw = Expressions(random, list(zip(rows.column_names, kinds, strict=True)))

        def condition() -> str:
            """One that some rows meet; one that is drawn alone is mostly met by all or by none."""
            last = f"c{len(kinds) - 1}"
            some = random.choice(
                (f"{last} > -5", f"{last} <> 7", f"{last} IS NULL", f"{last} BETWEEN -7 AND 2147483647")
            )
            return random.choice((draw.of("boolean", 2), some, f"({draw.of('boolean', 2)}) OR {some}"))

        self.steps: list[tuple[str, list[str]]] = []
        for kind in (*random.choices(("drop", "drop", "fail", "where", "columns"), k=random.randint(0, 3)), "drop"):
            count = random.randint(1, 3) if kind in ("drop", "fail") else 1
            drawn = [draw.any() if kind == "columns" else condition() for _ in range(2 * count)]
            self.steps.append((kind, list(evaluated(world, self.source, drawn))[:count]))
        self.steps = [(kind, texts) for kind, texts in self.steps if texts]
        fill(world, self.source, rows, files=random.choice((1, 3)))
        self.rows = rows

    def stream(self) -> Stream:
        stream = self.world.source(self.source)
        for place, (kind, texts) in enumerate(self.steps):
            if kind == "where":
                stream = stream >> where(texts[0])
            elif kind == "columns":
                stream = stream >> with_columns(**{f"x{place}": texts[0]})
            else:
                conditions = {f"rule {number}": text for number, text in enumerate(texts)}
                stream = stream >> expect(conditions, on_fail=kind)
        return stream

    def truth(self) -> tuple[int, bool]:
        """How many rows are left out by Spark's own SQL over the source's rows, and whether a row fails."""
        rows, dropped, fails = self.world.spark.createDataFrame(self.rows), 0, False
        for place, (kind, texts) in enumerate(self.steps):
            if kind == "columns":
                rows = rows.selectExpr("*", f"{texts[0]} AS x{place}")
                continue
            kept = rows.where(" AND ".join(f"coalesce({text}, false)" for text in texts))
            left = rows.count() - kept.count() if kind != "where" else 0
            fails = fails or (kind == "fail" and left > 0)
            dropped += left if kind == "drop" else 0
            rows = kept if kind != "fail" else rows
        return dropped, fails

    def outcome(self, engine: str, setting: str) -> Any:
        """The target's rows and the count of a run, or its error."""
        use(self.world, setting)
        target = f"{self.source}_{engine}"
        try:
            run = self.world.run(self.stream() >> self.world.sink(target))
        except HeliosError as error:
            return str(error).replace(target, "")
        return rows_of(scanned(self.world, target)), failed(run)

    def differs(self) -> str | None:
        """What is different between the engines; None if nothing is."""
        said = f"{self.source}: {self.steps}"
        dropped, fails = self.truth()
        native = self.outcome("native", "auto" if fails else "require")
        spark = self.outcome("spark", "off")
        if "internal error" in str(spark):
            return None  # Spark itself cannot push a condition
        if fails:
            told = "a row does not meet the expectation" in str(spark) or spark == (Counter(), 0)
            return None if native == spark and told else f"{said}: {native}, Spark {spark}"
        if isinstance(native, str) or native[0] != spark[0] or native[1] != dropped:
            return f"{said}: {native}, Spark {spark}, {dropped} are to be dropped"
        # Where its optimizer sees that no row is written at all, Spark computes and counts none.
        return None if native == spark or spark == (Counter(), 0) else f"{said}: {native}, Spark {spark}"


@pytest.mark.parametrize("seed", [10, 24])
@pytest.mark.cases(landing="10")
def test_expectations_are_as_by_spark(world: Any, seed: int) -> None:
    """The first has a row that stops the run, the other drops some."""
    assert Case(world, seed).differs() is None


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_hundreds_of_expectations_are_as_by_spark(world: Any) -> None:
    first, seen = int(os.environ.get("NATIVE_SEED", "100")), {"failed": 0, "dropped": 0}
    for seed in range(first, first + (CASES or 100)):
        case = Case(world, seed)
        dropped, fails = case.truth()
        seen["failed" if fails else "dropped"] += 1 if fails else dropped
        assert case.differs() is None
    print(f"{CASES or 100} pipelines from seed {first} on, 0 different: {seen}")


# the way of the counts


@pytest.fixture
def checked(world: Any) -> Callable[[], Any]:
    """A followed table of 10 rows, of which 4 fail an expectation."""
    use(world, "require")
    world.fill("a.s", range(10), part="CASE WHEN id < 8 THEN id % 4 END")
    steps = where("id <> 0") >> expect({"known": "part IS NOT NULL", "low": "part < 3"}, on_fail="drop")
    return lambda: world.source("a.s").incremental(poll=1) >> steps


def test_a_followed_table_counts_each_batch_once(world: Any, checked: Any) -> None:
    pipeline = checked() >> world.sink("a.t").partition_by("part")
    assert world.plan(pipeline).engine.native
    assert failed(world.run(pipeline)) == 4
    assert failed(world.run(pipeline)) == 0
    world.fill("a.s", range(10, 12), part="3")
    assert failed(world.run(pipeline)) == 2  # nothing is left to write
    world.fill("a.s", range(12, 14), part="1")
    assert failed(world.run(pipeline)) == 0
    assert world.ids("a.t") == [1, 2, 4, 5, 6, 12, 13]
    assert told(world) == []


def test_partitions_that_are_overwritten_count_as_by_spark(world: Any, checked: Any) -> None:
    found = {}
    for engine, setting in ENGINES.items():
        use(world, setting)
        sink = world.sink(f"a.{engine}").partition_by("part").overwrite_partitions()
        pipeline = world.source("a.s") >> expect({"low": "part < 3"}, on_fail="drop") >> sink
        found[engine] = failed(world.run(pipeline)), failed(world.run(pipeline)), world.ids(f"a.{engine}")
    assert found["native"] == found["spark"] == (4, 4, [0, 1, 2, 4, 5, 6])


def test_upserts_count_as_by_spark(world: Any, checked: Any) -> None:
    """Into a new table, then into one with rows, whose scope Spark looks up among the rows of the batch."""
    found: dict[str, list[Any]] = {engine: [] for engine in ENGINES}
    for ids in ([], [1, 4, 20]):
        world.fill("a.s", ids, part="CASE id WHEN 4 THEN 3 ELSE 2 END")
        for engine, setting in ENGINES.items():
            use(world, setting)
            run = world.run(checked() >> world.sink(f"a.{engine}").upsert("id"))
            found[engine] += [failed(run), world.ids(f"a.{engine}")]
    assert found["native"] == found["spark"] == [4, [1, 2, 4, 5, 6], 1, [1, 2, 4, 5, 6, 20]]
    assert told(world) == []


def test_a_batch_that_is_tried_again_is_counted_once(world: Any, checked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer appends a key of the batch before its commit."""
    pipeline = checked() >> world.sink("a.t").upsert("id")
    world.run(pipeline)
    world.fill("a.s", [1, 4, 20], part="CASE id WHEN 4 THEN 3 ELSE 2 END")
    real, calls = Transaction.commit, []

    def commit(self: Transaction) -> None:
        calls.append(self)
        if len(calls) == 1:
            world.fill("a.t", [20], part="0")
        real(self)

    monkeypatch.setattr(Transaction, "commit", commit)
    assert failed(world.run(pipeline)) == 1
    assert len(calls) == 2


def test_a_batch_of_spark_is_counted_by_it(world: Any, checked: Any) -> None:
    use(world, "auto")
    pipeline = checked() >> with_columns(next="id + 1") >> world.sink("a.t")
    world.sql("INSERT INTO local.a.s VALUES (9223372036854775807, 3), (100, NULL)")
    assert failed(world.run(pipeline)) == 6
    assert told(world) == []  # what overflows is left out before
    world.fill("a.s", [5, 6], part="CASE id WHEN 5 THEN 2 END")
    world.sql("ALTER TABLE local.a.s SET TBLPROPERTIES ('write.format.default' = 'orc')")
    world.fill("a.s", [7], part="3")
    assert failed(world.run(pipeline)) == 2
    assert told(world) == ["engine spark, because files of the source are orc"]


def test_spark_says_which_row_stops_the_run(world: Any) -> None:
    world.fill("a.s", range(3), part="id")
    errors = {}
    for setting in ("auto", "off"):
        use(world, setting)
        pipeline = world.source("a.s") >> expect({"small": "part < 2"}) >> where("id < 2") >> world.sink("a.t")
        assert world.plan(pipeline).engine.native == (setting == "auto")
        with pytest.raises(HeliosError) as caught:
            world.run(pipeline)
        errors[setting] = str(caught.value)
        assert world.ids("a.t") == []
    assert errors["auto"] == errors["off"]
    assert 'a row does not meet the expectation small (part < 2) in {"id":2,"part":2}' in errors["auto"]
    assert told(world) == [
        "engine spark, because a row does not meet expect(small=part < 2, on_fail=fail), and Spark says which"
    ]
    use(world, "require")
    with pytest.raises(HeliosError, match=r"runs on Spark, because a row does not meet expect\(small=part < 2"):
        world.run(pipeline)
    data = Path(world.load("a.t").iceberg.location().removeprefix("file://"), "data")
    assert list(data.rglob("*.parquet")) == []


@pytest.mark.parametrize("condition", ["true", "false"])
def test_rows_are_counted_of_a_pipeline_that_writes_none(world: Any, condition: str) -> None:
    """Spark computes nothing where its optimizer sees that, and counts nothing then."""
    world.fill("a.s", range(10))
    for engine, (setting, count) in {"native": ("require", 10), "spark": ("off", 0)}.items():
        use(world, setting)
        steps = expect({"none": "id > 3 AND false"}, on_fail="drop") >> where(condition)
        assert failed(world.run(world.source("a.s") >> steps >> world.sink(f"a.{engine}"))) == count
        steps = where("false") >> expect({"small": "id < 3"}, on_fail="drop")
        assert failed(world.run(world.source("a.s") >> steps >> world.sink(f"a.{engine}_none"))) == 0
        assert world.ids(f"a.{engine}") == []


def test_rows_that_are_set_aside_stay_with_spark(world: Any) -> None:
    use(world, "auto")
    world.fill("a.s", range(4))
    sink = world.sink("a.t").quarantine("a.bad")
    pipeline = world.source("a.s") >> expect({"small": "id < 2"}, on_fail="quarantine") >> sink
    assert "\n  engine    spark, because the sink has a quarantine\n" in str(world.plan(pipeline))
    assert failed(world.run(pipeline)) == 2
    assert (world.ids("a.t"), len(world.rows("a.bad"))) == ([0, 1], 2)


def test_lines_of_a_folder_are_counted(world: Any, tmp_path: Path) -> None:
    use(world, "require")
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        (folder / f"{number}.csv").write_text("id,name\n" + "".join(f"{i},{'x' if i % 3 else ''}\n" for i in range(9)))
    source = Files.source(str(folder), "csv", "id bigint, name string")
    run = world.run(source >> expect({"named": "name IS NOT NULL"}, on_fail="drop") >> world.sink("a.t"))
    assert (failed(run), world.ids("a.t")) == (6, sorted(2 * [1, 2, 4, 5, 7, 8]))


RETRIED = """
from helios import Iceberg, expect
from helios.spark.native import batch

real = batch._task_of


def task_of(*arguments):
    task = real(*arguments)

    def fails_at_first(shares):
        from pyspark import TaskContext

        told = list(task(shares))
        if TaskContext.get().attemptNumber() == 0:
            with open("failed", "a") as marks:
                marks.write(told[0])
            raise RuntimeError("the first attempt dies when it has told")
        return iter(told)

    return fails_at_first


batch._task_of = task_of
checked = Iceberg.source("a.s") >> expect({"small": "id < 7"}, on_fail="drop")
run = (checked >> Iceberg.sink("a.t")).run()
run.await_termination(120)
print("counted", run.metrics().records_failed)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rows_of_an_attempt_that_failed_are_not_counted(world: Any) -> None:
    world.fill("a.s", range(10))
    (world.folder / "helios.toml").write_text('[spark]\nnative = "require"\nmaster = "local[1, 2]"\n')
    (world.folder / "pipeline.py").write_text(RETRIED)
    command = [sys.executable, "pipeline.py"]
    done = subprocess.run(command, cwd=world.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(Path(world.folder, "failed").read_text())["dropped"] == 3  # one attempt has failed
    assert "counted 3\n" in done.stdout, done.stdout + done.stderr
    assert world.ids("a.t") == list(range(7))
