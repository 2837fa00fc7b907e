"""How far a pipeline is behind a folder, told without a JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helios.sources.common.file import File
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.kind import FILES
from helios.sources.files.lag import folder_lag
from helios.sources.files.log import FileLog
from helios.sources.iceberg.kind import ICEBERG
from helios.sources.iceberg.offsets import IcebergOffset
from helios.table.positions import recorded_entries
from tests.unit.files.test_log import Disk

AT = 1_700_000_000


def land(folder: Path, name: str, size: int) -> File:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x" * size)
    os.utime(path, (AT, AT))
    return File(f"file:{path}", size, AT * 1000)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    return tmp_path / "in box"


def read(tmp_path: Path, files: list[File]) -> FolderPosition:
    log = FileLog(Disk(tmp_path / "check"), f"file:{tmp_path}/check", 0)
    return log.append(FolderPosition(log=log.location), files)


def test_what_waits_is_counted(tmp_path: Path, inbox: Path) -> None:
    place = read(tmp_path, [land(inbox, "a.csv", 3), land(inbox, "deep/b.csv", 4)])
    lag = folder_lag(str(inbox), place, {})
    assert lag is not None
    assert (lag.files, lag.bytes, lag.seconds) == (0, 0, 0.0)
    for name in ("c.csv", "deep/er/d ü.csv", "deep/b.csv"):
        land(inbox, name, 10)
    for name in (".h.csv", "_temporary/0/e.csv", "f.csv.tmp"):
        land(inbox, name, 10)
    land(inbox, "empty.csv", 0)
    lag = folder_lag(f"file://{inbox}", place, {})
    assert lag is not None
    assert (lag.files, lag.bytes) == (3, 30)
    assert lag.seconds > 1_000


@pytest.mark.parametrize(
    ("glob", "waiting"),
    [
        ("*/", ["eu/a.csv", "us/deep/b.csv", "_old/c.csv", "{x}/d.csv", "top.csv"]),
        ("**/*", ["eu/a.csv", "us/deep/b.csv", "us/_hidden/b.csv", "_old/c.csv", "{x}/d.csv"]),
        ("{eu,us}/*.csv", ["eu/a.csv"]),
        ("{eu,us/deep}", ["eu/a.csv", "us/deep/b.csv"]),
        ("[!e]?", ["us/deep/b.csv"]),
        ("*.csv", ["top.csv"]),
        ("\\{x\\}", ["{x}/d.csv"]),
    ],
)
def test_what_waits_behind_a_glob(tmp_path: Path, inbox: Path, glob: str, waiting: list[str]) -> None:
    names = ("eu/a.csv", "us/deep/b.csv", "us/_hidden/b.csv", "_old/c.csv", "_old/_c.csv", "top.csv", "{x}/d.csv")
    sizes = {name: 1 << i for i, name in enumerate(names)}
    for name, size in sizes.items():
        land(inbox, name, size)
    lag = folder_lag(f"{inbox}/{glob}", read(tmp_path, []), {})
    assert lag is not None
    assert (lag.files, lag.bytes) == (len(waiting), sum(sizes[name] for name in waiting))


def test_an_unknown_lag_is_none(tmp_path: Path, inbox: Path) -> None:
    place = read(tmp_path, [land(inbox, "a.csv", 3)])
    assert folder_lag(f"{inbox}/{{a", place, {}) is None
    for path in (tmp_path / "check" / "helios" / "files" / "0").iterdir():
        path.unlink()
    assert folder_lag(str(inbox), place, {}) is None


def test_a_recorded_position_names_the_place() -> None:
    place = FolderPosition(log="/c/helios/files/0", entry=1, files=1, bytes=3, hash="ab", read=1)
    table, folder = recorded_entries(
        {"sources": [{"source": "t", "place": {"snapshot_id": 7}}, {"source": "/in", "place": place.as_json()}]}
    )
    assert (table.kind, table.position) == (ICEBERG, IcebergOffset(snapshot=7))
    assert (folder.kind, folder.position) == (FILES, place)
