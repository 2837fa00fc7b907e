"""The files of a checkpoint."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from helios.errors import CheckpointError, LeaseError
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease
from helios.spark.checkpoint.small_files import HadoopFiles, LocalFiles, SmallFiles, small_files
from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.names import names_of
from helios.spark.session.session import CHECKPOINT_FILES, declare_catalogs

pytestmark = pytest.mark.promise("checkpoints")


@pytest.fixture(params=[LocalFiles, HadoopFiles])
def files(request: pytest.FixtureRequest, shared_spark: SparkSession, tmp_path: Path) -> SmallFiles:
    """Files by Python, and the same by Hadoop."""
    root = f"file:{tmp_path}/the root%20"
    made: SmallFiles = LocalFiles(root) if request.param is LocalFiles else HadoopFiles(shared_spark, root)
    return made


def test_names_of_a_folder_are_as_they_are(files: SmallFiles) -> None:
    odd = {"0", ".0.crc", "a b", "a, b", "ä%20", "x" * 200, "Array(", "}"}
    folder = Path(files.root.removeprefix("file:"))
    (folder / "a, b").mkdir(parents=True)
    (folder / "empty").mkdir()
    for name in odd:
        (folder / "a, b" / name).write_text("")
    assert set(files.names("a, b")) == odd
    assert files.names("empty") == files.names("missing") == []


def test_a_file_is_replaced_as_a_whole(files: SmallFiles) -> None:
    folder = Path(files.root.removeprefix("file:"))
    assert files.read("helios/a.json") is None
    for text in ('{"a": "ä"}\r\nline\n', "", "shorter"):
        files.write("helios/a.json", text)
        assert files.read("helios/a.json") == text
        (folder / "helios/.a.json.crc").write_text("Spark's own")
    files.write("helios/a.json", "the last")
    assert [path.name for path in (folder / "helios").iterdir()] == ["a.json"], "no draft, no old checksum"
    (folder / "helios/a.json").write_bytes(b"half a \xc3")
    assert files.read("helios/a.json") == "half a \ufffd", "damaged, which whoever parses it says"
    assert files.read("helios") is None, "a folder"


STRICT = """\
package helios.spark.engine;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

public class Strict extends RawLocalFileSystem {
  private int left;

  public Strict(int renames) {
    this.left = renames;
  }

  public boolean rename(Path from, Path to) throws IOException {
    return !exists(to) && left-- > 0 && super.rename(from, to);
  }
}
"""
"""A file system that does not rename onto a file, as HDFS and ADLS do not, and fails after some renames."""


def test_a_store_that_does_not_rename_onto_a_file_loses_no_text(shared_spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "Strict.java"
    source.write_text(STRICT)
    files = HadoopFiles(shared_spark, f"file:{tmp_path}/root")
    files.write("helios/a.json", "old")
    strict: Any = instance(shared_spark, source, 1)
    strict.initialize(classes().java.net.URI.create("file:///"), shared_spark._jsc.hadoopConfiguration())
    files._fs = strict
    files.write("helios/a.json", "new")
    assert files.read("helios/a.json") == "new"
    with pytest.raises(CheckpointError, match=r"a\.json\.\w+\.tmp could not be renamed to .*/helios/a\.json"):
        files.write("helios/a.json", "newer")
    [draft] = (tmp_path / "root/helios").iterdir()
    assert draft.read_text() == "newer", "the message names the file that has the text"


def test_files_and_folders_are_deleted_and_renamed(files: SmallFiles) -> None:
    folder = Path(files.root.removeprefix("file:"))
    files.write("keys/base/3/part", "rows")
    files.rename("keys/base/3", "keys/base/-1")
    assert files.names("keys/base") == ["-1"]
    (folder / "keys/.base.crc").write_text("")
    files.delete("keys/base")
    files.delete("keys/base")
    assert files.names("keys") == []
    files.write("offsets/0", "v1")
    (folder / "offsets/.0.crc").write_text("")
    files.delete("offsets/0")
    assert files.names("offsets") == []
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("")
    (folder / "link").symlink_to(elsewhere)
    files.delete("link")
    assert (elsewhere / "kept").exists(), "what a link leads to stays"


def test_a_root_is_moved_to_an_empty_place_alone(files: SmallFiles, shared_spark: SparkSession) -> None:
    files.write("helios/identity.json", "{}")
    folder = Path(files.root.removeprefix("file:"))
    to = small_files(shared_spark, f"file:{folder.parent}/new/place")
    taken = small_files(shared_spark, f"file:{folder.parent}/taken")
    taken.write("metadata", "another's")
    with pytest.raises((OSError, Py4JJavaError)):
        files.move(taken)
    assert taken.read("metadata") == "another's"
    Path(to.root.removeprefix("file:")).mkdir(parents=True)
    files.move(to)
    assert to.read("helios/identity.json") == "{}"
    assert not folder.exists()


def test_a_local_root_is_found_by_every_spelling(shared_spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    folded = f"file:{tmp_path}/link/../a"  # of the path alone, whatever a link leads to
    for location in (f"{tmp_path}/a", f"file:{tmp_path}/a", f"file://{tmp_path}/a/", f"file:{tmp_path}//a", folded):
        files = small_files(shared_spark, location)
        assert isinstance(files, LocalFiles)
        assert files.root == HadoopFiles(shared_spark, location).root == f"file:{tmp_path}/a"


@pytest.mark.landing
def test_one_of_several_drivers_that_start_at_once_has_the_lease(shared_spark: SparkSession, tmp_path: Path) -> None:
    for number in range(10):
        leases = [Lease(Checkpoint(shared_spark, f"file:{tmp_path}/{number}")) for _ in range(4)]
        start = Barrier(len(leases))

        def take(lease: Lease, start: Barrier = start) -> Lease | None:
            start.wait()
            try:
                lease.acquire()
            except LeaseError:
                return None
            return lease

        with ThreadPoolExecutor(len(leases)) as threads:
            held = [lease for lease in threads.map(take, leases) if lease is not None]
        assert len(held) == 1
        held[0].verify()
        held[0].release()
        leases[0].acquire()
        leases[0].release()


def test_a_folder_that_somebody_has_locked_is_waited_for_and_then_not(tmp_path: Path) -> None:
    files = LocalFiles(f"file:{tmp_path}")
    with files.locked() as first:
        assert first
        with files.locked() as second:
            assert not second
    with files.locked() as third:
        assert third


def test_names_of_a_store_that_lists_in_an_array_of_its_own_class(shared_spark: SparkSession) -> None:
    hadoop = classes().org.apache.hadoop.fs
    plain = hadoop.FileStatus(0, False, 1, 1, 0, hadoop.Path("s3a://bucket/a/0.json"))
    own = java_array(hadoop.LocatedFileStatus, [hadoop.LocatedFileStatus(plain, None)])
    assert names_of(own) == ["0.json"]


@pytest.mark.landing
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
