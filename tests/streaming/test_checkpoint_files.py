"""The files of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from helios.spark.checkpoint.files import HadoopFiles


def test_names_of_a_folder_are_as_they_are(shared_spark: SparkSession, tmp_path: Path) -> None:
    odd = {"0", ".0.crc", "a b", "a, b", "ä%20", "x" * 200, "Array(", "}"}
    for name in odd:
        (tmp_path / "a, b" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "a, b" / name).write_text("")
    (tmp_path / "empty").mkdir()
    files = HadoopFiles(shared_spark, str(tmp_path))
    assert set(files.names("a, b")) == odd
    assert files.names("empty") == files.names("missing") == []
