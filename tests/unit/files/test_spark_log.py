"""The log of Spark's file stream, as earlier versions left it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helios.errors import CheckpointError
from helios.sources.common.file import File
from helios.sources.files.spark_log import files_of
from tests.unit.files.test_log import Disk


def line(batch: int, count: int = 1) -> str:
    return "\n".join(
        json.dumps({"path": f"file:///in%20box/{batch}.{n}.csv", "timestamp": 1_000 + batch, "batchId": batch})
        for n in range(count)
    )


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    disk = Disk(tmp_path)
    for batch in range(10, 13):
        disk.write(f"sources/0/{batch}", f"v1\n{line(batch)}")
    disk.write("sources/0/9.compact", "v1\n" + "\n".join(line(batch) for batch in range(10)))
    disk.write("sources/0/.9.compact.crc", "")
    return disk


def read(disk: Disk, after: int, upto: int) -> list[int]:
    return [file.modified - 1_000 for file in files_of(disk, str(disk.root), 0, after, upto)]


def test_it_names_files_as_a_listing_does(disk: Disk) -> None:
    assert files_of(disk, "", 0, 10, 11) == [File("file:/in box/11.0.csv", -1, 1_011)]


@pytest.mark.parametrize(("after", "upto"), [(-1, 12), (-1, 5), (3, 5), (8, 10), (11, 12), (12, 12)])
def test_a_range_goes_over_compacted_batches(disk: Disk, after: int, upto: int) -> None:
    assert read(disk, after, upto) == list(range(after + 1, upto + 1))


@pytest.mark.parametrize("text", [None, "", "v2\n", "v1\n{"])
def test_a_damaged_log_is_refused(disk: Disk, text: str | None) -> None:
    disk.delete("sources/0/11") if text is None else disk.write("sources/0/11", text)
    with pytest.raises(CheckpointError, match=r"sources/0/11 is missing or damaged"):
        read(disk, -1, 12)
