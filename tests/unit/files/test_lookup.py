"""A row of a file is found again by its key, with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios.sources.common.file import File
from helios.sources.common.lookup import SourceLookup
from helios.sources.files import lookup as files
from helios.sources.files.folder_position import FolderPosition
from helios.table.positions import Span
from helios.table.view import View

pytestmark = pytest.mark.promise("why")

CSV = {"format": "csv", "options": {"header": "true", "escape": '"'}}


def found(folder: Path, declared: dict[str, Any], *names: str) -> SourceLookup:
    held = tuple(File(f"file:{folder / name}", 10, 1) for name in names)
    # The log is gone with its checkpoint: the commit itself names the files of a small batch.
    at = FolderPosition(log="file:/nowhere/helios/files/0", entry=3, files=len(held), hash="ab", names=held)
    span = Span("file:/in", None, at.as_json(), {})
    return files.lookup(span, {"id": 4}, declared, View(load=lambda name: None))


def test_lines_of_csv_and_json_and_rows_of_parquet(tmp_path: Path) -> None:
    (tmp_path / "a b.csv").write_text('id,note\n1,x\n4,"y, ""z"""\n')
    (tmp_path / "c.csv").write_text("id,note\n4,again\n")
    told = found(tmp_path, CSV, "a b.csv", "c.csv")
    assert (told.count, told.by, told.note) == (2, ("id",), None)
    assert told.rows == ({"id": "4", "note": "again"}, {"id": "4", "note": 'y, "z"'})  # the newest file first
    assert told.places == ("c.csv, line 2: ", "a b.csv, line 3: ")

    (tmp_path / "m.csv").write_text('id,note\n\n4,"two\nlines"\n')
    told = found(tmp_path, {**CSV, "options": {**CSV["options"], "multiLine": "true"}}, "m.csv")
    assert (told.rows, told.places) == (({"id": "4", "note": "two\nlines"},), ("m.csv, line 3: ",))

    (tmp_path / "d.json").write_text('{"id": 1}\n\n{"ID": 4, "n": 1}\n')
    told = found(tmp_path, {"format": "json", "options": {}}, "d.json")
    assert (told.rows, told.places) == (({"ID": 4, "n": 1},), ("d.json, line 3: ",))

    pq.write_table(pa.table({"id": [1, 4]}), tmp_path / "e.parquet")
    told = found(tmp_path, {"format": "parquet"}, "e.parquet")
    assert (told.rows, told.places) == (({"id": 4},), ("e.parquet, row 2: ",))


def test_what_cannot_be_looked_through_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("id\n4\n")
    assert found(tmp_path, CSV, "a.csv", "gone.csv").note == "1 of 2 files cannot be read any more"
    other = found(tmp_path, {"format": "orc"}, "a.csv").note
    assert other == "1 of 1 files have a format or options that cannot be searched"
    assert found(tmp_path, {**CSV, "options": {"header": "false"}}, "a.csv").count == 0
    monkeypatch.setattr(files, "MAX_BYTES", 5)
    assert "too large to be searched" in str(found(tmp_path, CSV, "a.csv").note)
