"""The columnar engine beside Spark: the same rows to the bit, the same metadata of files, and exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlparse

import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from helios import rename, select, where, with_columns
from helios.errors import CheckFailed, HeliosError
from helios.native.program import NotNative
from helios.native.reader import frames
from helios.native.work import InputFile, Target, Work
from helios.plan.native.steps import program_of
from helios.plan.typing.schema import from_pyiceberg
from helios.spark.iceberg.transaction import Transaction
from helios.spark.native import batch as native
from tests.streaming.native_cases import KINDS, Expressions, rows_of, table

CASES = int(os.environ.get("NATIVE_CASES", "0"))
"""Cases of the long form."""


@pytest.fixture(autouse=True)
def workers(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.spark.sparkContext, "pythonExec", sys.executable)  # Spark's workers need Polars


@pytest.fixture
def required(world: Any) -> Any:
    (world.folder / "helios.toml").write_text('[spark]\nnative = "require"\n')
    return world


def fill(world: Any, name: str, rows: pa.Table, *, files: int = 1) -> None:
    """A new table with these rows."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    frame = world.spark.createDataFrame(rows).repartition(files)
    frame.writeTo(f"local.{name}").using("iceberg").createOrReplace()


def scanned(world: Any, name: str) -> pa.Table:
    return world.spark.read.table(f"local.{name}").toArrow()


def told(world: Any) -> list[str]:
    return [event.message for event in world.events if event.kind == "noted"]


# expressions


def evaluated(world: Any, name: str, expressions: list[str]) -> dict[str, pa.Array]:
    """What the engine makes of expressions over a table of one file; without those that it leaves to Spark."""
    found = world.load(name).iceberg
    schema = from_pyiceberg(found.schema())
    (task,) = found.scan().plan_files()
    file = InputFile(urlparse(task.file.file_path).path, task.file.file_size_in_bytes, task.file.record_count)
    ids = {field.name: field.field_id for field in found.schema().fields}
    made = {}
    for text in expressions:
        try:
            program = program_of(world.source(name) >> with_columns(x=text) >> select("x"), schema)
            work = Work("x", program, ids, Target("", 0, (), (), "zstd", 3, 1, 1))
            made[text] = pl.concat(frames(file, work)).to_arrow(compat_level=pl.CompatLevel.oldest())
        except NotNative:
            continue
    return made


def differing(world: Any, seed: int, count: int) -> tuple[int, list[str]]:
    """How many expressions both engines have computed, and those that differ."""
    random, name = Random(seed), f"a.x{seed}"
    kinds = [random.choice(KINDS) for _ in range(3)] + ["int", "bigint", "double", "float", "string", "boolean"]
    rows = table(random, kinds, 40)
    fill(world, name, rows)
    columns = list(zip(rows.column_names, kinds, strict=True))
    draw = Expressions(random, columns)
    made = evaluated(world, name, [draw.any() for _ in range(count)])
    if not made:
        return 0, []
    read = world.spark.read.table(f"local.{name}")
    texts = list(made)
    try:
        spark = read.selectExpr(*(f"{text} AS `{i}`" for i, text in enumerate(texts))).toArrow()
    except PySparkException as error:
        return len(made), [f"{error} of {texts}"]
    wrong = []
    for i, text in enumerate(texts):
        own, theirs = made[text], spark.select([i])
        kind = theirs.schema.field(0).type
        if own.schema.field(0).type.equals(pa.large_string()):
            own = own.cast(pa.schema([("x", pa.string())]))
        elif pa.types.is_large_binary(own.schema.field(0).type):
            own = own.cast(pa.schema([("x", pa.binary())]))
        if own.schema.field(0).type != kind or rows_of(own) != rows_of(theirs):
            wrong.append(f"{text} over {kinds}: {own.schema.field(0).type} {kind}")
    return len(made), wrong


@pytest.mark.parametrize("seed", range(3))
def test_expressions_are_computed_as_by_spark(world: Any, seed: int) -> None:
    computed, wrong = differing(world, seed, 40)
    assert wrong == []
    assert computed > 5


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_thousands_of_expressions_are_computed_as_by_spark(world: Any) -> None:
    computed, seed = 0, 1000
    while computed < (CASES or 5000):
        made, wrong = differing(world, seed, 60)
        assert wrong == [], f"seed {seed}"
        computed, seed = computed + made, seed + 1
    print(f"{computed} expressions, 0 different")


# whole batches


PARTITIONS = ("int", "bigint", "string", "date", "boolean")
READABLE = ("value_count", "null_value_count", "nan_value_count", "lower_bound", "upper_bound")


def metadata(world: Any, name: str) -> dict[str, Any]:
    """What the metadata says of the files of each partition, but for their sizes; there is one of each."""
    partition = {field.name for field in world.load(name).iceberg.spec().fields}
    columns = ["partition"] if partition else []
    files = world.spark.read.table(f"local.{name}.files").selectExpr(
        *columns, "record_count", "file_format", "content", "spec_id", "sort_order_id", "value_counts",
        "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
    )  # fmt: skip
    found = {}
    for row in files.collect():
        values = row.asDict(recursive=True)
        values["sort_order_id"] = values["sort_order_id"] or 0
        found[str(values.get("partition"))] = values
    return found


def beside(world: Any, seed: int) -> str:
    """Drawn rows through a drawn pipeline by both engines; what was drawn, for the message."""
    random = Random(seed)
    kinds = [random.choice(KINDS) for _ in range(random.randint(1, 6))] + ["int"]
    by = random.choice([None, *(i for i, kind in enumerate(kinds) if kind in PARTITIONS)])
    rows = table(random, kinds, random.choice((1, 7, 60)))
    fill(world, f"a.s{seed}", rows)
    condition = Expressions(random, list(zip(rows.column_names, kinds, strict=True))).of("boolean", 2)
    said = f"{kinds} by {by} where {condition}"
    for name, setting in (("spark", "off"), ("native", "require")):
        (world.folder / "helios.toml").write_text(f'[spark]\nnative = "{setting}"\n')
        sink = world.sink(f"a.{name}{seed}")
        sink = sink.partition_by(f"c{by}") if by is not None else sink
        try:
            world.run(world.source(f"a.s{seed}") >> where(condition) >> sink)
        except HeliosError as error:
            if setting == "require" and "require" in str(error):
                return ""  # it stays with Spark
            if setting == "off" and "internal error" in str(error):
                return ""  # Spark itself cannot push the condition
            raise
    assert rows_of(scanned(world, f"a.native{seed}")) == rows_of(scanned(world, f"a.spark{seed}")), said
    assert metadata(world, f"a.native{seed}") == metadata(world, f"a.spark{seed}"), said
    return said


def test_batches_are_written_as_by_spark(world: Any) -> None:
    written = [said for seed in range(6) if (said := beside(world, seed))]
    assert len(written) >= 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_hundreds_of_batches_are_written_as_by_spark(world: Any) -> None:
    written = [said for seed in range(100, 100 + (CASES or 300)) if (said := beside(world, seed))]
    print(f"{len(written)} batches, 0 different")


# the way of a batch


def data(world: Any, name: str) -> set[str]:
    """The data files that are on disk of a table."""
    return {str(path) for path in Path(urlparse(world.load(name).iceberg.location()).path, "data").rglob("*.parquet")}


def live(world: Any, name: str) -> set[str]:
    """The data files that a table has."""
    return {urlparse(task.file.file_path).path for task in world.load(name).iceberg.scan().plan_files()}


def test_a_followed_table_is_copied_once_with_its_stamps(required: Any) -> None:
    world = required
    world.fill("a.s", range(10), part="id % 2")
    pipeline = (
        world.source("a.s").incremental(poll=1)
        >> where("id <> 3")
        >> rename({"part": "p"})
        >> world.sink("a.t").partition_by("p").snapshot_properties({"team": "x"})
    )
    assert "\n  engine    native\n" in str(world.plan(pipeline))
    assert json.loads(world.plan(pipeline).to_json())["engine"] == {"native": True, "why": None}
    world.run(pipeline)
    world.fill("a.s", range(10, 20), part="id % 2")
    run = world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == [i for i in range(20) if i != 3]
    assert sorted(row.id for row in world.sql("SELECT id FROM local.a.t WHERE p = 1 AND id < 12")) == [1, 5, 7, 9, 11]
    summary: Mapping[str, str] = world.load("a.t").current_snapshot().summary
    assert (summary["helios.batch"], summary["team"]) == ("1", "x")
    assert (summary["added-records"], summary["added-data-files"]) == ("10", "2")
    assert {"spark.app.id", "engine-name"} <= summary.keys()
    assert run.metrics().records_written == 10
    assert told(world) == []
    assert data(world, "a.t") == live(world, "a.t")


@pytest.mark.parametrize("landed", [False, True])
def test_a_driver_that_dies_around_the_commit_doubles_nothing(
    required: Any, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = required
    world.fill("a.s", range(10))
    pipeline = world.source("a.s").incremental(poll=1) >> where("id > 0") >> world.sink("a.t")
    real = Transaction.commit

    def dies(self: Transaction) -> None:
        if landed:
            real(self)
        raise RuntimeError("the driver dies")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", dies)
        with pytest.raises(Exception, match="the driver dies"):
            world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == list(range(1, 10))


def test_a_job_that_fails_leaves_no_files(required: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = required
    world.fill("a.s", range(10))
    pipeline = world.source("a.s") >> world.sink("a.t")
    real = native._run

    def fails(*arguments: Any) -> list[str]:
        real(*arguments)
        raise RuntimeError("the job failed")

    with monkeypatch.context() as patched:
        patched.setattr(native, "_run", fails)
        with pytest.raises(Exception, match="the job failed"):
            world.run(pipeline)
    assert data(world, "a.t") == set()
    world.run(pipeline)
    assert world.ids("a.t") == list(range(10))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DELETE FROM local.a.s WHERE id = 1", "files of the source have row-level deletes"),
        ("ALTER TABLE local.a.s ADD COLUMN extra int", "a file was written before the column extra came"),
        (
            "ALTER TABLE local.a.s ALTER COLUMN part TYPE bigint",
            "a file has the column part in another form than bigint",
        ),
        ("INSERT INTO local.a.s VALUES (9223372036854775807, 0)", "Spark may fail on a value of the batch"),
    ],
)
def test_spark_does_what_the_engine_does_not(world: Any, change: str, reason: str) -> None:
    (world.folder / "helios.toml").write_text('[spark]\nnative = "auto"\n')
    world.fill("a.s", range(10), part="CAST(id % 2 AS INT)")
    world.sql("ALTER TABLE local.a.s SET TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read')")
    world.sql(change)
    pipeline = (
        world.source("a.s") >> with_columns(next="CASE WHEN id > 100 THEN 0L ELSE id + 1 END") >> world.sink("a.t")
    )
    assert world.plan(pipeline).engine.native
    world.run(pipeline)
    (message,) = told(world)
    assert message.startswith(f"engine spark, because {reason}")
    found = {row.id: row.next for row in world.sql("SELECT id, next FROM local.a.t")}
    kept = [row.id for row in world.sql("SELECT id FROM local.a.s")]
    assert found == {i: 0 if i > 100 else i + 1 for i in kept}
    assert data(world, "a.t") == live(world, "a.t")


def test_a_required_engine_that_cannot_stops_the_run(required: Any) -> None:
    world = required
    world.fill("a.s", range(3))
    world.sql("ALTER TABLE local.a.s ADD COLUMN extra int")
    with pytest.raises(CheckFailed, match="is not among the expressions"):
        world.run(world.source("a.s") >> where("sha2(id, 256) <> ''") >> world.sink("a.t"))
    with pytest.raises(HeliosError, match="a file was written before the column extra came"):
        world.run(world.source("a.s") >> world.sink("a.t"))
    assert not world.catalog.exists("a.t") or world.rows("a.t") == {}


KILLED = """
import os
import signal

from helios import Iceberg, where
from helios.spark.iceberg.transaction import Transaction

moment, real = os.environ.get("KILLED", "never"), Transaction.commit


def commit(self):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(self)
    if moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)


Transaction.commit = commit

pipeline = Iceberg.source("a.s").incremental(poll=1) >> where("id <> 3") >> Iceberg.sink("a.t")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_process_doubles_nothing(required: Any) -> None:
    """`kill -9` between the staging and the commit, then right after the commit."""
    world = required
    world.fill("a.s", range(10))
    (world.folder / "pipeline.py").write_text(KILLED)
    command = [sys.executable, "-m", "helios", "run", "pipeline.py", "--once"]
    for moment, code in (("before", -signal.SIGKILL), ("after", -signal.SIGKILL), ("never", 0)):
        environment = {**os.environ, "KILLED": moment}
        done = subprocess.run(command, cwd=world.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert "engine spark" not in done.stdout
        if moment == "before":
            assert world.rows("a.t") == {}
            assert len(data(world, "a.t")) == 1  # nobody was left to delete it
        world.load("a.t").iceberg.refresh()
    assert world.ids("a.t") == [i for i in range(10) if i != 3]
    assert len(live(world, "a.t")) == 1
