"""The columnar engine without Spark: files in, files out, and what it leaves to Spark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import BinaryType, LongType, StringType

from helios import Iceberg, cast, drop, rename, select, where, with_columns
from helios.native import reader, task, writer
from helios.native.metrics import ColumnMetrics
from helios.native.partitions import grouped_by_partition
from helios.native.program import NotNative, Program
from helios.native.work import Column, Partition, Sort, Target, Work
from helios.plan.native.steps import program_of
from helios.plan.typing.schema import from_arrow
from helios.spark.native.spread import divide
from helios.spark.native.stores import Store

pytestmark = pytest.mark.promise("engine")

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None, 4, 5], pa.int64()),
        "n": pa.array([7, None, 0, 2**31 - 1, -1], pa.int32()),
        "x": [1.5, float("nan"), -0.0, None, 2.5],
        "name": ["a", "b", None, "d" * 40, "e"],
    }
)
SOURCE = Iceberg.source("a.s")


def numbered(rows: pa.Table, ids: list[int] | None = None) -> pa.Table:
    """Rows with field ids, as Iceberg's files have them."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for field, number in zip(rows.schema, ids or range(1, len(rows.schema) + 1), strict=True)
    ]
    return rows.cast(pa.schema(fields))


def work(folder: Path, program: Program, partition: tuple[Partition, ...] = (), **target: Any) -> Work:
    columns = tuple(Column(name, 10 + i, kind, False, "truncate(16)") for i, (name, kind) in enumerate(program.columns))
    settings = {"codec": "zstd", "level": 3, "file_size": 1 << 30, "group_size": 1 << 30, **target}
    made = Target(str(folder / "data"), 0, columns, partition, **settings)
    return Work("w", program, {name: i + 1 for i, name in enumerate(ROWS.column_names)}, made)


def share_of(path: Path, uri: bool = False) -> tuple[str, int, int]:
    """A file of a share; by its URI it is read as one of a store is."""
    return f"file://{path}" if uri else str(path), path.stat().st_size, 5


def done(
    folder: Path, stream: Any, rows: pa.Table | None = None, *, uri: bool = False, **settings: Any
) -> dict[str, Any]:
    """What a task tells of one file through the steps of a stream."""
    path = folder / "in.parquet"
    pq.write_table(rows if rows is not None else numbered(ROWS), path)
    made = work(folder, program_of(stream, from_arrow(ROWS.schema)), **settings)
    found: dict[str, Any] = json.loads(task.run("write", made.to_json(), [share_of(path, uri)], "3"))
    return found


def test_steps_over_a_file(tmp_path: Path) -> None:
    stream = (
        SOURCE.where("id IS NOT NULL")
        >> where("x > 1 OR n = 2147483647")
        >> with_columns(twice="id * 2", kind="CASE WHEN n < 0 THEN 'minus' ELSE name END")
        >> rename({"name": "label"})
        >> drop("n")
        >> cast(twice="string")
    )
    (file,) = done(tmp_path, stream)["files"]
    assert pq.read_table(file["file-path"]).to_pylist()[0] == {
        "id": 1, "x": 1.5, "label": "a", "twice": "2", "kind": "a",
    }  # fmt: skip
    assert file["record-count"] == 4  # NaN is above 1
    schema = pq.ParquetFile(file["file-path"]).schema_arrow
    assert [int(field.metadata[b"PARQUET:field_id"]) for field in schema] == [10, 11, 12, 13, 14]


def test_metrics_of_a_file(tmp_path: Path) -> None:
    (file,) = done(tmp_path, SOURCE >> where("n IS NULL OR n <> 5"))["files"]
    told = {
        key: dict(zip(one["keys"], one["values"], strict=True)) for key, one in file.items() if isinstance(one, dict)
    }
    assert told["value-counts"] == {10: 5, 11: 5, 12: 5, 13: 5}
    assert told["null-value-counts"] == {10: 1, 11: 1, 12: 1, 13: 1}
    assert told["nan-value-counts"] == {12: 1}
    assert from_bytes(LongType(), bytes.fromhex(told["upper-bounds"][10])) == 5
    assert told["lower-bounds"][12] == "0000000000000080"  # -0.0
    assert from_bytes(StringType(), bytes.fromhex(told["upper-bounds"][13])) == "e"
    assert file["split-offsets"] == [4]


@pytest.mark.parametrize(
    ("column", "values", "low", "high"),
    [
        ("string", ["\U0010ffff" * 20], "\U0010ffff" * 16, None),
        ("string", ["\ud7ff" * 17], "\ud7ff" * 16, "\ud7ff" * 15 + "\ue000"),
        ("binary", [b"\xff" * 17, b"a"], b"a", None),
        ("binary", [b"a" + b"\xff" * 17], b"a" + b"\xff" * 15, b"b"),
    ],
)
def test_bounds_are_cut_as_iceberg_cuts_them(column: str, values: list[Any], low: Any, high: Any) -> None:
    metrics = ColumnMetrics(Column("c", 1, column, False, "truncate(16)"))
    metrics.add(pa.chunked_array([pa.array(values)]))
    found = metrics.bounds()
    kind = StringType() if column == "string" else BinaryType()
    assert [from_bytes(kind, one) if one is not None else None for one in found] == [low, high]


def test_files_of_partitions_and_of_a_size(tmp_path: Path) -> None:
    by = (Partition("n", "n", "int", "identity"),)
    files = done(tmp_path, SOURCE >> select("n", "name"), partition=by, group_size=1, file_size=1)["files"]
    assert [file["partition"] for file in files] == [[None], [-1], [0], [7], [2147483647]]
    assert Path(files[0]["file-path"]).parent.name == "n=null"
    whole = done(tmp_path, SOURCE, group_size=1, file_size=1)["files"]
    assert sum(file["record-count"] for file in whole) == 5


def test_rows_are_sorted_within_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = (Sort("x", True, False), Sort("id", False, True))
    by = (Partition("id_bucket", "id", "bigint", "bucket[1]"),)
    (nulls, file) = sorted(
        done(tmp_path, SOURCE, partition=by, sort=order, sort_id=3)["files"], key=lambda one: one["record-count"]
    )
    assert [nulls["sort-order-id"], file["sort-order-id"]] == [3, 3]
    assert str(pq.read_table(file["file-path"])["x"].to_pylist()) == "[None, nan, 2.5, 1.5]"
    monkeypatch.setattr(writer, "MAX_SORTED_BYTES", 1)
    assert done(tmp_path, SOURCE, sort=order) == {"refused": "a task has more rows than it sorts in memory"}


def test_more_partitions_than_files_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_OPEN_LOCAL", 2)
    monkeypatch.setattr(writer, "MAX_UNSORTED_BYTES", 1)
    by = (Partition("n", "n", "int", "identity"),)
    files = done(tmp_path, SOURCE >> select("n", "name"), numbered(ROWS), partition=by)["files"]
    assert sorted(file["partition"][0] or 0 for file in files) == [-1, 0, 0, 7, 2147483647]
    assert sum(pq.read_metadata(file["file-path"]).num_rows for file in files) == 5


def test_a_time_that_no_calendar_has_is_left_to_spark(tmp_path: Path) -> None:
    rows = pl.DataFrame({"t": [2**62]}, schema={"t": pl.Datetime("us")})
    with pytest.raises(NotNative, match="outside of the years 1 to 9999"):
        grouped_by_partition(rows, [Partition("t_day", "t", "timestamp_ntz", "day")])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (ROWS, "a file has no field ids"),
        (
            numbered(ROWS, [1, 2, 3, 9]),
            "a file lacks the column name, which is required, or has a default or a partition value",
        ),
        (numbered(ROWS.slice(1)), "a file has another number of rows than the table's metadata says"),
    ],
)
def test_files_that_are_not_as_the_table_is_are_left_to_spark(tmp_path: Path, rows: pa.Table, reason: str) -> None:
    assert done(tmp_path, SOURCE, rows) == {"refused": reason}
    assert list((tmp_path / "data").rglob("*")) == []


def test_a_file_that_nobody_reads_right_is_named(tmp_path: Path) -> None:
    told = done(tmp_path, SOURCE, numbered(ROWS.set_column(1, "n", ROWS["n"].cast("int64"))))
    assert list(told) == ["misread"]
    assert re.fullmatch(r"the file \S+ has the column n as INT64, which Iceberg .* table's int", told["misread"])
    assert list((tmp_path / "data").rglob("*")) == []


def test_a_large_file_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_VALUES", 1)
    many = numbered(pa.concat_tables([ROWS] * 20_000))
    path = tmp_path / "in.parquet"
    pq.write_table(many, path)
    made = work(tmp_path, program_of(SOURCE >> where("id <> 2"), from_arrow(ROWS.schema)))
    (file,) = json.loads(task.run("write", made.to_json(), [(str(path), 1, 100_000)], "0"))["files"]
    assert pq.read_table(file["file-path"])["id"].to_pylist() == [1, 4, 5] * 20_000


@pytest.mark.parametrize("uri", [False, True])
def test_rows_without_a_column_of_the_file_are_all_there(tmp_path: Path, uri: bool) -> None:
    (file,) = done(tmp_path, SOURCE >> where("true") >> select("1 AS one"), uri=uri)["files"]
    assert pq.read_table(file["file-path"]).to_pylist() == [{"one": 1}] * 5


@pytest.mark.parametrize("uri", [False, True])
def test_rows_of_columns_that_a_file_lacks_are_all_there(tmp_path: Path, uri: bool) -> None:
    pq.write_table(numbered(ROWS.select(["id"])), tmp_path / "in.parquet")
    made = replace(work(tmp_path, program_of(SOURCE >> select("n"), from_arrow(ROWS.schema))), absent=("n",))
    share = [share_of(tmp_path / "in.parquet", uri)]
    (file,) = json.loads(task.run("write", made.to_json(), share, "0"))["files"]
    assert pq.read_table(file["file-path"]).to_pylist() == [{"n": None}] * 5


def test_a_text_that_is_none_is_left_to_spark(tmp_path: Path) -> None:
    """A file on a store is read by Arrow, which takes any bytes for text."""
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    rows = numbered(ROWS.slice(0, 1).set_column(3, "name", bad))
    pq.write_table(rows, tmp_path / "in.parquet")
    made = work(tmp_path, program_of(SOURCE, from_arrow(ROWS.schema)))
    for uri in (False, True):
        path, size, _ = share_of(tmp_path / "in.parquet", uri)
        told = json.loads(task.run("write", made.to_json(), [(path, size, 1)], "0"))
        assert told["refused"].startswith("the engine failed: ")


def test_a_file_of_a_store_is_read_as_one_of_the_disk(tmp_path: Path) -> None:
    """Whatever Arrow types its writer has noted."""
    noted = ROWS.set_column(3, "name", ROWS["name"].dictionary_encode())
    noted = noted.append_column("s", pa.array([1, 2, 3, 4, None], pa.timestamp("us", "Europe/Berlin")))
    pq.write_table(numbered(noted), tmp_path / "in.parquet", row_group_size=2)
    schema = from_arrow(ROWS.append_column("s", noted["s"].cast(pa.timestamp("us", "UTC"))).schema)
    made = work(tmp_path, program_of(SOURCE >> where("id IS NULL OR id <> 2"), schema))
    made = replace(made, ids={**made.ids, "s": 5})
    read = []
    for uri in (False, True):
        (file,) = json.loads(task.run("write", made.to_json(), [share_of(tmp_path / "in.parquet", uri)], "0"))["files"]
        read.append({k: v for k, v in file.items() if "path" not in k and "size" not in k})
        read.append(str(pq.read_table(file["file-path"]).to_pydict()))
    assert read[:2] == read[2:]


def test_renamed_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    (file,) = done(tmp_path, SOURCE, numbered(ROWS.rename_columns(["old", "n", "x", "name"])))["files"]
    assert pq.read_table(file["file-path"])["id"].to_pylist() == [1, 2, None, 4, 5]


@pytest.mark.parametrize("expression", ["n + 1", "-(n - 1) * 5000000", "CAST(id * 1000000000000 AS INT)"])
def test_a_value_on_which_spark_may_fail_leaves_the_batch_to_spark(tmp_path: Path, expression: str) -> None:
    told = done(tmp_path, SOURCE >> with_columns(y=expression) >> where("id = 1"))
    assert told == {"refused": "Spark may fail on a value of the batch, with an error that names the value"}


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(numbered(ROWS), path)
    made = work(tmp_path, program_of(SOURCE, from_arrow(ROWS.schema)), group_size=1)
    shares = [(str(path), 1, 5), (str(tmp_path / "gone.parquet"), 1, 5)]
    assert "gone.parquet" in json.loads(task.run("write", made.to_json(), shares, "0"))["refused"]
    assert [one for one in (tmp_path / "data").rglob("*") if one.is_file()] == []


def test_an_executor_without_the_engine_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    assert json.loads(task.run("write", "", [], "0")) == {"refused": "an executor cannot import polars"}


def test_an_executor_without_a_client_says_so(tmp_path: Path) -> None:
    made = work(tmp_path, program_of(SOURCE, from_arrow(ROWS.schema)))
    store = {"py-io-impl": "helios.catalog.clients.none.NoneFileIO", "adls.account-key": "secret"}
    told = task.run("write", made.to_json(), [("abfss://a@b/c.parquet", 1, 5)], "0", (store, {}))
    assert json.loads(told)["refused"].startswith("an executor has no client for abfss")
    assert "secret" not in told


def test_an_executor_without_bucket_partitions_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg_core", None)
    by = (Partition("id_bucket", "id", "bigint", "bucket[4]"),)
    assert done(tmp_path, SOURCE, partition=by) == {"refused": "an executor cannot import pyiceberg_core"}
    assert [one for one in (tmp_path / "data").rglob("*") if one.is_file()] == []


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (where("name NOT LIKE 'a%'"), "is an expression that the native engine"),
        (where("name LIKE 'a_c'"), "is not a prefix"),
        (where("upper(name) = 'A'"), "is an expression that the native engine"),
        (where("n > 0.5"), "compares int with decimal"),
        (where("n = id = true"), "without parentheses"),
        (with_columns(y="n * (n * 0)"), "computes in another order"),
        (where("name = 'a\\\\n'"), "has a backslash"),
        (where("id IN (SELECT 1)"), "is an expression that the native engine"),
        (with_columns(y="try_cast(id AS INT)"), "is an expression that the native engine"),
        (with_columns(y="CAST(x AS STRING)"), "a cast of double to string"),
        (with_columns(y="array(id)"), "is an expression that the native engine"),
        (with_columns(y="NULL"), "column y is a void"),
        (select("id + 1"), "has no alias"),
        (rename({"id": "n"}), "gives a name that another column has"),
        (cast(n="tinyint"), "a cast of int to tinyint"),
    ],
)
def test_what_is_not_certain_stays_with_spark(step: Any, reason: str) -> None:
    with pytest.raises(NotNative, match=reason):
        program_of(SOURCE >> step, from_arrow(ROWS.schema))


def test_shares_and_places() -> None:
    assert divide([], 4) == []
    with pytest.raises(NotNative, match="files are on s3, and the table is not"):
        Store().path("s3://bucket/a.parquet")
    with pytest.raises(NotNative, match="has a \\? or #"):
        Store("s3").path("s3://bucket/a#b.parquet")
    with pytest.raises(NotNative, match="files are on hdfs, and the engine reads local disks, S3, ADLS and GCS"):
        Store("s3").path("hdfs://host/a.parquet")
    assert Store("s3").path("s3a://bucket/a b.parquet") == "s3a://bucket/a b.parquet"
    assert {Store().path(one) for one in ("/a/b", "file:/a/b", "file:///a/b")} == {"/a/b"}
