"""Files whose footer is whole and whose rows are not: found by reading them, and set aside as others are."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from helios import Files, with_columns
from helios.errors import RunError
from helios.sources.files.spark import rows as file_rows
from helios.sources.files.spark.reader import FilesReader
from tests.suite.deaths import dies_at

pytestmark = pytest.mark.promise("bad-files")

MANY = 20_000


def table(ids: range) -> pa.Table:
    return pa.table({"id": ids, "name": [f"name {i % 977} {i * 7919 % 1009}" for i in ids]})


def parquet(ids: range) -> bytes:
    written = BytesIO()
    pq.write_table(table(ids), written, use_dictionary=False)
    return written.getvalue()


def orc_file(ids: range) -> bytes:
    written = BytesIO()
    orc.write_table(table(ids), written, compression="zlib")
    return written.getvalue()


FORMATS: dict[str, Callable[[range], bytes]] = {"parquet": parquet, "orc": orc_file}


def damaged(content: bytes) -> bytes:
    """A file with damage in its middle, and a whole footer."""
    quarter = len(content) // 4
    return content[:quarter] + b"\xff" * 2 * quarter + content[3 * quarter :]


def land(folder: Path, name: str, content: bytes, order: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    os.utime(folder / name, (1_700_000_000 + order, 1_700_000_000 + order))


def noted(world: Any) -> list[tuple[str, int]]:
    """The files in the quarantine, each with its batch."""
    found = world.rows("a.q", "payload", "batch").elements()
    return sorted((json.loads(payload)["file"].rpartition("/")[2], batch) for payload, batch in found)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.cases(landing="parquet")
def test_a_file_that_is_damaged_inside_is_set_aside(world: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world.folder / "in box"
    made = FORMATS[kind]
    land(folder, f"good.{kind}", made(range(3)), 0)
    land(folder, f"inside.{kind}", damaged(made(range(MANY))), 1)
    source = Files.source(str(folder), kind).incremental(poll=1)
    with pytest.raises(
        RunError, match=rf"inside\.{kind} cannot be read: .*set such files aside: \.on_bad_file"
    ) as failed:
        world.run(source >> world.sink("a.fail"))
    assert "\n" not in str(failed.value)
    # What can be told before the batch is read is in the quarantine first, and written again with the rest.
    land(folder, f"empty.{kind}", b"", 2)
    aside = source.on_bad_file("quarantine") >> with_columns(double="id * 2") >> world.sink("a.t").quarantine("a.q")
    with dies_at(FilesReader, "confirm"):
        world.run(aside)
    assert world.ids("a.t") == []
    assert noted(world) == [(f"empty.{kind}", 0), (f"inside.{kind}", 0)]
    with monkeypatch.context() as patched:  # the replay knows it, and does not try it again
        patched.setattr(file_rows, "read_failure", lambda *_: "")
        world.run(aside)
    assert world.ids("a.t") == [0, 1, 2]
    assert noted(world) == [(f"empty.{kind}", 0), (f"inside.{kind}", 0)]
    land(folder, f"inside.{kind}", made(range(3, 5)), 3)
    world.run(aside)
    assert world.ids("a.t") == [0, 1, 2, 3, 4]


WITH_ANOTHER: dict[str, tuple[Callable[[int], bytes], bytes]] = {
    "csv": (lambda i: b"id\n%d\n" % i, b"id,more\n7,x\n"),
    "json": (lambda i: b'{"id": %d}\n' % i, b'{"id": 7}\n{"id": 8, "more": 1}\n'),
    "parquet": (lambda i: parquet_of(id=[i]), b""),
}


def parquet_of(**columns: list[Any]) -> bytes:
    written = BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


@pytest.mark.parametrize("kind", WITH_ANOTHER)
@pytest.mark.cases(landing="csv")
def test_a_file_with_another_column_is_set_aside(world: Any, kind: str) -> None:
    folder = world.folder / "in"
    made, other = WITH_ANOTHER[kind]
    land(folder, f"a.{kind}", made(1), 0)
    land(folder, f"b.{kind}", other or parquet_of(id=[7], more=["x"]), 1)
    land(folder, f"c.{kind}", made(3), 2)
    source = Files.source(str(folder), kind, schema="id bigint").on_bad_file("quarantine").incremental(poll=1)
    pipeline = source >> world.sink("a.t").quarantine("a.q")
    with dies_at(FilesReader, "confirm"):
        world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 3]
    assert noted(world) == [(f"b.{kind}", 0)]
    [(reason,)] = world.rows("a.q", "reason")
    assert reason == "it has columns that the declared schema lacks: more. Known: id."
    # Once it is repaired, it is read.
    land(folder, f"b.{kind}", made(2), 3)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]


def test_a_file_with_a_type_that_does_not_fit_is_set_aside(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "a.parquet", parquet_of(id=[1]), 0)
    land(folder, "b.parquet", parquet_of(id=[[7]]), 1)
    source = Files.source(str(folder), "parquet", schema="id bigint").on_bad_file("quarantine")
    world.run(source >> world.sink("a.t").quarantine("a.q"))
    assert world.ids("a.t") == [1]
    assert [name for name, _ in noted(world)] == ["b.parquet"]


def test_damaged_files_of_a_batch_that_is_read_once(world: Any) -> None:
    folder = world.folder / "in"
    for number in range(3):
        land(folder, f"good{number}.parquet", parquet(range(number, number + 1)), number)
        land(folder, f"inside{number}.parquet", damaged(parquet(range(MANY))), number)
    land(folder, "empty.parquet", b"", 9)
    pipeline = Files.source(str(folder), "parquet").on_bad_file("quarantine") >> world.sink("a.t").quarantine("a.q")
    # The second run has nothing to do, and the third is told to append everything again.
    for again, failed, times in ((False, 4, 1), (False, 0, 1), (True, 4, 2)):
        metrics = world.run(pipeline, again=again).metrics()
        assert (metrics.records_failed, metrics.commits_failed) == (failed, 0)
        assert Counter(world.ids("a.t")) == dict.fromkeys(range(3), times)
        aside = ["empty.parquet", *(f"inside{n}.parquet" for n in range(3))]
        assert Counter(name for name, _ in noted(world)) == dict.fromkeys(aside, times)


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.cases(landing="False")
def test_a_file_that_goes_while_it_is_looked_at_is_missing_and_not_bad(
    world: Any, monkeypatch: pytest.MonkeyPatch, skips: bool
) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.csv").write_text(f"id\n{number}\n")
        os.utime(folder / f"{number}.csv", (1_700_000_000 + number, 1_700_000_000 + number))
    verified, gone = FilesReader.verified, folder.parent / "1.csv"

    def goes(reader: FilesReader, span: Any) -> Any:
        found = verified(reader, span)
        if (folder / "1.csv").exists():
            (folder / "1.csv").rename(gone)
        return found

    monkeypatch.setattr(FilesReader, "verified", goes)
    source = Files.source(str(folder), "csv", schema="id bigint").incremental(poll=1).on_bad_file("quarantine")
    pipeline = (source.on_missing("skip") if skips else source) >> world.sink("a.t").quarantine("a.q")
    if skips:
        world.run(pipeline)
        assert world.ids("a.t") == [0, 2]
    else:
        with pytest.raises(RunError, match=r"in/1\.csv was planned for this batch, and is gone"):
            world.run(pipeline)
    monkeypatch.undo()
    gone.rename(folder / "1.csv")
    world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2]
    assert not world.catalog.exists("a.q") or not list(world.rows("a.q", "reason").elements())
