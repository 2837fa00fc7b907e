"""The columnar engine beside Spark: the same rows to the bit, and the same metadata of files."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random
from typing import Any
from urllib.parse import urlparse

import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from helios import select, where, with_columns
from helios.errors import HeliosError
from helios.model.partition import PartitionField
from helios.native.partitions import PARTITION_TYPES
from helios.native.program import NotNative
from helios.native.reader import frames
from helios.native.work import InputFile, Target, Work
from helios.plan.native.steps import program_of
from helios.plan.typing.schema import from_pyiceberg
from tests.streaming.native_cases import KINDS, Expressions, fill, rows_of, scanned, set_engine, table

CASES = int(os.environ.get("NATIVE_CASES", "0"))
"""Cases of a long form, whose first seed is NATIVE_SEED."""


pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("engine")]


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
            # From the disk and, by its URI, as from a store.
            own, stored = (
                pl.concat(frames(one, work)).to_arrow(compat_level=pl.CompatLevel.oldest())
                for one in (file, replace(file, path=f"file://{file.path}"))
            )
            assert own.schema == stored.schema
            assert rows_of(own) == rows_of(stored), text
            made[text] = own
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
@pytest.mark.cases(landing="0")
def test_expressions_are_computed_as_by_spark(world: Any, seed: int) -> None:
    computed, wrong = differing(world, seed, 40)
    assert wrong == []
    assert computed > 5


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_thousands_of_expressions_are_computed_as_by_spark(world: Any) -> None:
    computed, seed = 0, int(os.environ.get("NATIVE_SEED", "1000"))
    while computed < (CASES or 5000):
        made, wrong = differing(world, seed, 60)
        assert wrong == [], f"seed {seed}"
        computed, seed = computed + made, seed + 1
    print(f"{computed} expressions up to seed {seed - 1}, 0 different")


# whole batches


def metadata(world: Any, name: str) -> dict[str, Any]:
    """What the metadata says of the files of each partition, but for their sizes; there is one of each."""
    partition = {field.name for field in world.load(name).iceberg.spec().fields}
    columns = ["partition"] if partition else []
    files = world.spark.read.table(f"local.{name}.files").selectExpr(
        *columns, "record_count", "file_format", "content", "spec_id", "sort_order_id", "value_counts",
        "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
        "regexp_extract(file_path, '/data/(.*/)?', 1) AS folder",
    )  # fmt: skip
    found = {}
    for row in files.collect():
        values = row.asDict(recursive=True)
        values["sort_order_id"] = values["sort_order_id"] or 0
        found[str(values.get("partition"))] = values
    return found


def partitioning(random: Random, kinds: list[str]) -> list[PartitionField]:
    """Partition fields that are drawn, of columns of their own."""
    found = []
    for column in random.sample(range(len(kinds)), random.choice((0, 1, 1, min(2, len(kinds))))):
        fitting = [name for name, takes in PARTITION_TYPES.items() if kinds[column].partition("(")[0] in takes]
        if fitting:
            transform = random.choice(fitting)
            width = random.choice((1, 3, 7, 100)) if transform in ("bucket", "truncate") else None
            found.append(PartitionField(transform, f"c{column}", width))
    return found


def sorting(random: Random, kinds: list[str]) -> list[str]:
    """A sort order that is drawn."""
    if random.random() < 0.5:
        return []
    columns = random.sample(range(len(kinds)), random.choice((1, min(2, len(kinds)))))
    ways = ("", " desc", " asc nulls last", " desc nulls first")
    return [f"c{column}{random.choice(ways)}" for column in columns]


def unsorted(world: Any, name: str, order: list[str]) -> list[str]:
    """The files of a table whose rows are not in an order, as Spark compares them."""
    if not order:
        return []
    files = [row.file_path for row in world.sql(f"SELECT file_path FROM local.{name}.files")]
    wrong = []
    for file in files:
        rows = world.spark.read.parquet(file).selectExpr("*", "monotonically_increasing_id() AS at").cache()
        ranked = rows.selectExpr(
            f"dense_rank() OVER (ORDER BY {', '.join(order)}) AS rank", "at"
        ).orderBy("at")  # fmt: skip
        ranks = [row.rank for row in ranked.collect()]
        wrong += [file] if ranks != sorted(ranks) else []
        rows.unpersist()
    return wrong


def beside(world: Any, seed: int) -> int:
    """Drawn rows through a drawn pipeline by both engines; how many expressions it had, 0 where it stays with Spark."""
    random = Random(seed)
    kinds = [random.choice(KINDS) for _ in range(random.randint(1, 6))] + ["int"]
    rows = table(random, kinds, random.choice((1, 7, 60)))
    fill(world, f"a.s{seed}", rows)
    draw = Expressions(random, list(zip(rows.column_names, kinds, strict=True)))
    condition = draw.of("boolean", 2)
    computed = list(evaluated(world, f"a.s{seed}", [draw.any() for _ in range(16)]))
    fields = partitioning(random, kinds)
    overwrites = bool(fields) and random.random() < 0.4
    order = sorting(random, kinds)
    said = f"{kinds} by {list(map(str, fields))} sorted by {order} where {condition} with {computed}"
    steps = with_columns(**{f"x{i}": text for i, text in enumerate(computed)}) if computed else where("true")
    for name, setting in (("native", "require"), ("spark", "off")):
        set_engine(world, setting)
        sink = world.sink(f"a.{name}{seed}")
        sink = sink.partition_by(*fields) if fields else sink
        sink = sink.overwrite_partitions() if overwrites else sink
        sink = sink.sort_by(*order) if order else sink
        try:
            world.run(world.source(f"a.s{seed}") >> where(condition) >> steps >> sink)
        except HeliosError as error:
            if setting == "require" and 'native = "require"' in str(error):
                return 0  # it stays with Spark
            if setting == "off" and "internal error" in str(error):
                return 0  # Spark itself cannot push the condition
            raise AssertionError(said) from error
    assert rows_of(scanned(world, f"a.native{seed}")) == rows_of(scanned(world, f"a.spark{seed}")), said
    assert metadata(world, f"a.native{seed}") == metadata(world, f"a.spark{seed}"), said
    assert unsorted(world, f"a.native{seed}", order) == [], said
    return 1 + len(computed)


def test_batches_are_written_as_by_spark(world: Any) -> None:
    written = [count for seed in range(6) if (count := beside(world, seed))]
    assert len(written) >= 3


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_hundreds_of_batches_are_written_as_by_spark(world: Any) -> None:
    first = int(os.environ.get("NATIVE_SEED", "100"))
    written = [count for seed in range(first, first + (CASES or 300)) if (count := beside(world, seed))]
    print(f"{len(written)} batches with {sum(written)} expressions from seed {first} on, 0 different")
