"""The files of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from helios.spark.checkpoint.files import HadoopFiles
from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.names import names_of
from helios.spark.session.session import CHECKPOINT_FILES, declare_catalogs


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


def test_spark_writes_local_checkpoints_by_the_class_that_starts_no_processes(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    elsewhere = world.source("a.s").incremental(poll=1) >> world.sink("a.u").checkpoint("s3://bucket/checkpoints/u")
    local, store = world.plan(pipeline), world.plan(elsewhere)
    session = world.spark.newSession()
    declare_catalogs(session, [local, store])
    assert session.conf.get(CHECKPOINT_FILES, None) is None
    declare_catalogs(session, [local])
    manager = session._jvm.java.lang.Class.forName(session.conf.get(CHECKPOINT_FILES))
    assert manager.getSimpleName() == "FileSystemBasedCheckpointFileManager"
    given = world.spark.newSession()
    given.conf.set(CHECKPOINT_FILES, "of.the.User")
    declare_catalogs(given, [local])
    assert given.conf.get(CHECKPOINT_FILES) == "of.the.User"
