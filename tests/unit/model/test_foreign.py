"""Names and values of PySpark, pandas and SQL that users bring along: the right one is told, or they are taken."""

from __future__ import annotations

import copy
import datetime as dt
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from helios import Iceberg, Kafka, Memory, day, dedupe, drop, select, where, window
from helios.errors import CheckFailed, DeclarationError, InputError
from helios.model.partition import PartitionField
from helios.script import load_script

pytestmark = pytest.mark.promise("words")

SOURCE = Iceberg.source("a.b")
SINK = Iceberg.sink("a.t")


class Column:
    """What `pyspark.sql.functions.col` gives, without the Spark that it needs."""


Column.__module__ = "pyspark.sql.column"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SOURCE.filter("x > 0"), r"no \.filter\(\)\. Fix: write >> where\("),
        (
            lambda: (SOURCE >> where("x > 0")).withColumn("a", "b"),
            r"no \.withColumn\(\)\. Fix: write >> with_columns\(",
        ),
        (lambda: where("x > 0").groupBy("a"), r"no \.groupBy\(\)\. Fix: write >> aggregate\("),
        (lambda: SOURCE.wher("x"), r"no \.wher\(\)\. Did you mean 'where'\?"),
        (lambda: SINK.upsert("id").order_by("seq"), r'Fix: write it as an argument: \.upsert\("id", order_by="'),
        (lambda: SINK.partitionBy("d"), r"Fix: write \.partition_by\("),
        (
            lambda: SINK.partition_by("month(d)"),
            r'it would be a column of that name\. Fix: write partition_by\(month\("d"\)\)',
        ),
        (lambda: SINK.partition_by("days(ts)"), r'Fix: write partition_by\(day\("ts"\)\)'),
        (lambda: SINK.partition_by("bucket( 16, `id` )"), r'Fix: write partition_by\(bucket\(16, "id"\)\)'),
        (lambda: where(Column()), r"where takes text, not a Column of PySpark\. Fix: write it as Spark SQL text"),
        (
            lambda: SOURCE.where(Column()),
            r"where\(\) needs a predicate\. Fix: write it as Spark SQL text",
        ),
    ],
)
def test_what_is_written_as_elsewhere_is_told_as_it_is_here(call: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as told:
        call()
    assert told.value.where is not None
    assert told.value.where.file.endswith("test_foreign.py")


def test_names_may_come_as_a_list() -> None:
    assert SINK.upsert(["a", "b"]) == SINK.upsert("a", "b")
    assert SINK.delete(["a", "b"]) == SINK.delete("a", "b")
    assert SINK.partition_by(["d", day("ts")]).partitioning == (PartitionField("identity", "d"), day("ts"))
    assert SINK.sort_by(["a", "b desc"]) == SINK.sort_by("a", "b desc")
    assert SINK.drops(["a", "b"]) == SINK.drops("a", "b")
    assert SOURCE.select(["a", "b"]) == SOURCE.select("a", "b")
    assert select(["a", "b"]).steps == select("a", "b").steps
    assert drop(["a", "b"]).steps == drop("a", "b").steps
    assert dedupe(["a", "b"]).steps == dedupe("a", "b").steps
    assert window("ts", "1 h").group_by(["a", "b"]) == window("ts", "1 h").group_by("a", "b")
    for wrong in (lambda: SINK.delete([]), lambda: select([]), lambda: drop([]), lambda: dedupe([])):
        with pytest.raises(DeclarationError, match="needs"):
            wrong()


def test_values_are_copied_pickled_and_asked_for_what_they_lack() -> None:
    for value in (SOURCE, SOURCE >> where("x > 0"), SINK, where("x > 0")):
        assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
        assert not hasattr(value, "filter")
        assert not hasattr(value, "__array__")


FRAME = {
    "id": [1, 2],
    "at": [dt.datetime(2026, 1, 1), None],
    "x": [1.5, None],
    "s": [{"a": 1}, None],
    "list": [["a"], ["b", "c"]],
}
ROWS = ((1, dt.datetime(2026, 1, 1), 1.5, {"a": 1}, ["a"]), (2, None, None, None, ["b", "c"]))


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(FRAME), pl.DataFrame(FRAME), pa.table(FRAME)], ids=["pandas", "polars", "arrow"]
)
def test_a_frame_is_a_source(frame: Any) -> None:
    source = Memory.source(frame)
    types = "`id` bigint, `at` timestamp_ntz, `x` double, `s` struct<a:bigint>, `list` array<string>"
    assert (source.declared_schema, source.rows) == (types, ROWS)
    assert (source >> where("s.a = 1")).schema() is not None


@pytest.mark.parametrize("frame", [pd.DataFrame({"id": []}, dtype="int64"), pa.table({"id": pa.array([], pa.int64())})])
def test_a_frame_without_rows_keeps_its_columns(frame: Any) -> None:
    source = Memory.source(frame)
    assert (source.declared_schema, source.rows) == ("`id` bigint", ())


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            pa.table({"t": pa.array([1], pa.time64("us"))}),
            r"column 't' has the type time64\[us\], which Spark does not",
        ),
        (pd.DataFrame({"t": [pd.Timestamp(1)]}), r"column 't' has times finer than a microsecond"),
    ],
)
def test_a_frame_whose_values_spark_cannot_have_is_told(frame: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Memory.source(frame)


@pytest.mark.parametrize(
    "condition", ["d > 1998-01-01", "d between 1998-1-1 and 1999-12-31", "id = 1 or name < 1998-01-01"]
)
def test_a_date_without_quotes_is_no_date(condition: str) -> None:
    schema = "id int, d date, name string"
    pipeline = Memory.source([(1, None, "a")], schema) >> where(condition) >> SINK
    with pytest.raises(
        CheckFailed, match=r"1998-\d+-\d+ is the number 199\d in SQL, not a date\. Fix: write DATE '1998-01-01'"
    ):
        pipeline.check()


@pytest.mark.parametrize(
    "condition",
    ["id > 1998 - 1", "d > DATE '1998-01-01'", "name > '1998-01-01'", "id > 5000 - id - 1", "id > 3600 - 30 - 5"],
)
def test_what_is_subtracted_stays(condition: str) -> None:
    (Memory.source([(1, None, "a")], "id int, d date, name string") >> where(condition) >> SINK).check()


def script(folder: Path, *lines: str) -> Path:
    file = folder / "pipe.py"
    file.write_text("\n".join(["from helios import *", "src = Memory.source([{'id': 1}])", *lines]))
    return file


@pytest.mark.parametrize("line", ["src >> Iceberg.sink('a.t')", "(src >> Iceberg.sink('a.t')).named('x')"])
def test_a_pipeline_without_a_variable_is_told(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match=r"pipe\.py:4: this pipeline is not assigned to a variable"):
        load_script(script(tmp_path, "kept = src >> Iceberg.sink('a.u')", line))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("Iceberg.source('a.b').incremental(interval=60)", r"'interval'\. Write poll="),
        ("Iceberg.source('a.b').incremental(max_row=60)", r"'max_row'\. Did you mean 'max_rows'"),
        ("Iceberg.sink('a.b').upsert('id', orderBy='ts')", r"'orderBy'\. Write order_by="),
    ],
)
def test_an_argument_that_a_call_lacks_is_told_with_the_right_one(tmp_path: Path, argument: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_script(script(tmp_path, f"x = {argument}"))


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("", "pipe.py declares 1 pipeline and runs none. To run: `helios run pipe.py`, or made.run()."),
        ("made.plan()", ""),
    ],
)
def test_a_script_that_python_runs_says_that_it_runs_nothing(tmp_path: Path, last: str, told: str) -> None:
    file = script(tmp_path, "made = src >> Iceberg.sink('a.t')", last)
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, told)


@pytest.mark.parametrize(
    "line", ["src >> where('id > 0')", "1 >> 2", "x = [1 >> 2]", "(src >> Iceberg.sink('a.t')).check"]
)
def test_other_expressions_may_stand_alone(tmp_path: Path, line: str) -> None:
    assert len(load_script(script(tmp_path, "kept = src >> Iceberg.sink('a.u')", line)).pipelines) == 1


def test_a_schema_beside_a_frame_names_its_columns() -> None:
    frame = pa.table({"a": ["x"], "b": ["y"], "c": ["z"]})
    source = Memory.source(frame, "b string, a string")
    assert (source.declared_schema, source.rows) == ("b string, a string", (("y", "x"),))
    with pytest.raises(DeclarationError, match=r"the frame has no column 'd'\. Known: a, b, c"):
        Memory.source(frame, "d string")
    twice = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["a", "a"])
    with pytest.raises(DeclarationError, match="the frame has 2 columns 'a': it is not clear"):
        Memory.source(twice, "a string")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Kafka.sink("t").partitionBy("d"), r"has no \.partitionBy\(\)\. Known|Did you mean"),
        (lambda: where("x > 0").show(), r"has no \.show\(\)\. "),
    ],
)
def test_a_call_that_the_value_lacks_is_not_advised(call: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as told:
        call()
    assert told.value.fix is None


def test_a_script_that_died_is_not_told_to_run(tmp_path: Path) -> None:
    file = script(tmp_path, "made = src >> Iceberg.sink('a.t')", "1 / 0")
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "runs none" not in done.stderr
