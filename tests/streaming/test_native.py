"""The columnar engine beside Spark: the same rows to the bit, the same metadata of files, and exactly once."""

from __future__ import annotations

import os
from random import Random
from typing import Any
from urllib.parse import urlparse

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from pyspark.errors import PySparkException

from helios import select, where, with_columns
from helios.errors import CheckFailed, HeliosError, InputError
from helios.native.program import NotNative
from helios.native.reader import frames
from helios.native.work import InputFile, Target, Work
from helios.plan.native.steps import program_of
from helios.plan.typing.schema import from_pyiceberg
from tests.streaming.native_cases import KINDS, Expressions, rows_of, table

DRAWN = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
CASES = int(os.environ.get("NATIVE_CASES", "0"))
"""Cases of the long form."""


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
    return [event.fields["message"] for event in world.events if event.kind == "noted"]


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


def differing(world: Any, random: Random, count: int) -> tuple[int, list[str]]:
    """How many expressions both engines have computed, and those that differ."""
    kinds = [random.choice(KINDS) for _ in range(3)] + ["int", "bigint", "double", "float", "string", "boolean"]
    rows = table(random, kinds, 40)
    fill(world, "a.x", rows)
    columns = list(zip(rows.column_names, kinds, strict=True))
    draw = Expressions(random, columns)
    made = evaluated(world, "a.x", [draw.any() for _ in range(count)])
    if not made:
        return 0, []
    read = world.spark.read.table("local.a.x")
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
    computed, wrong = differing(world, Random(seed), 40)
    assert wrong == []
    assert computed > 5


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_thousands_of_expressions_are_computed_as_by_spark(world: Any) -> None:
    computed, seed = 0, 1000
    while computed < (CASES or 5000):
        made, wrong = differing(world, Random(seed), 60)
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


def beside(world: Any, random: Random) -> str:
    """Drawn rows through a drawn pipeline by both engines; what was drawn, for the message."""
    kinds = [random.choice(KINDS) for _ in range(random.randint(1, 6))] + ["int"]
    by = random.choice([None, *(i for i, kind in enumerate(kinds) if kind in PARTITIONS)])
    rows = table(random, kinds, random.choice((1, 7, 60)))
    fill(world, "a.s", rows)
    condition = Expressions(random, list(zip(rows.column_names, kinds, strict=True))).of("boolean", 2)
    said = f"{kinds} by {by} where {condition}"
    for name, setting in (("spark", "off"), ("native", "require")):
        (world.folder / "helios.toml").write_text(f'[spark]\nnative = "{setting}"\n')
        world.sql(f"DROP TABLE IF EXISTS local.a.{name}")
        sink = world.sink(f"a.{name}").partition_by(f"c{by}") if by is not None else world.sink(f"a.{name}")
        try:
            world.run(world.source("a.s") >> where(condition) >> sink, full_refresh=False)
        except (CheckFailed, InputError, HeliosError) as error:
            if setting == "require" and "require" in str(error):
                return ""  # it stays with Spark
            raise
    assert rows_of(scanned(world, "a.native")) == rows_of(scanned(world, "a.spark")), said
    assert metadata(world, "a.native") == metadata(world, "a.spark"), said
    return said


def test_batches_are_written_as_by_spark(world: Any) -> None:
    written = [said for seed in range(6) if (said := beside(world, Random(seed)))]
    assert len(written) >= 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_hundreds_of_batches_are_written_as_by_spark(world: Any) -> None:
    written = [said for seed in range(100, 100 + (CASES or 300)) if (said := beside(world, Random(seed)))]
    print(f"{len(written)} batches, 0 different")
