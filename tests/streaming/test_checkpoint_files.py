"""The files of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from helios.spark.checkpoint.files import HadoopFiles
from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.names import names_of


def test_names_of_a_folder_are_as_they_are(shared_spark: SparkSession, tmp_path: Path) -> None:
    odd = {"0", ".0.crc", "a b", "a, b", "ä%20", "x" * 200, "Array(", "}"}
    for name in odd:
        (tmp_path / "a, b" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "a, b" / name).write_text("")
    (tmp_path / "empty").mkdir()
    files = HadoopFiles(shared_spark, str(tmp_path))
    assert set(files.names("a, b")) == odd
    assert files.names("empty") == files.names("missing") == []


def test_names_of_a_store_that_lists_in_an_array_of_its_own_class(shared_spark: SparkSession) -> None:
    hadoop = classes().org.apache.hadoop.fs
    plain = hadoop.FileStatus(0, False, 1, 1, 0, hadoop.Path("s3a://bucket/a/0.json"))
    own = java_array(hadoop.LocatedFileStatus, [hadoop.LocatedFileStatus(plain, None)])
    assert names_of(own) == ["0.json"]
