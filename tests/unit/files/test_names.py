"""Local paths are understood before a run as Hadoop understands them in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files
from helios.errors import DeclarationError
from helios.sources.files.describe import missing_path_error, parquet_columns
from helios.table.file_names import data_files_below, local_matches

pytestmark = pytest.mark.promise("files")


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("id\n1\n")
    return folder


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("{a,b}.csv", ["a.csv", "b.csv"]),
        ("?.csv", ["a.csv", "b.csv"]),
        ("day=*", ["day=1", "day=2"]),
        ("day=*/*.csv", ["day=1/c.csv", "day=2/d.csv"]),
        ("{day=1/c,day=2/*}.csv", ["day=1/c.csv", "day=2/d.csv"]),
        ("data[1]", ["data[1]"]),
        ("a.csv", ["a.csv"]),
        ("{a.csv", []),
        ("no*", []),
        ("none", []),
    ],
)
def test_a_path_that_exists_is_no_glob(tmp_path: Path, glob: str, found: list[str]) -> None:
    made(tmp_path, "a.csv", "b.csv", "day=1/c.csv", "day=2/d.csv", "data[1]/e.csv", "data1/f.csv")
    assert [str(Path(path).relative_to(tmp_path)) for path in local_matches(f"{tmp_path}/{glob}")] == found


def test_a_glob_goes_through_links(tmp_path: Path) -> None:
    made(tmp_path, "real/a.csv")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "real")
    assert local_matches(f"{tmp_path}/in/*/a.csv") == [f"{tmp_path}/in/link/a.csv"]


def test_hidden_files_and_folders_are_not_read(tmp_path: Path) -> None:
    made(tmp_path, "in/a.csv", "in/_SUCCESS", "in/.b=1.csv", "in/_tmp/c.csv", "in/_day=1/d.csv", "in/e.csv.tmp")
    assert [Path(path).name for path in data_files_below(f"{tmp_path}/in")] == ["a.csv", "d.csv"]


def test_the_format_is_that_of_the_files_that_are_read(tmp_path: Path) -> None:
    made(tmp_path, "in/a", "in/_old/b.parquet", "in[1]/c.csv", "in1/d.json")
    with pytest.raises(DeclarationError, match="the format is not clear from the path"):
        Files.source(f"{tmp_path}/in")
    assert Files.source(f"{tmp_path}/in[1]").format == "csv"
    assert Files.source(f"{tmp_path}/{{in1,in2}}").format == "json"


def test_a_glob_with_braces_names_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")  # type: ignore[no-untyped-call]
    source = Files.source(f"{tmp_path}/{{a,b}}.parquet")
    assert missing_path_error(source) is None
    found = parquet_columns(source.path)
    assert found is not None
    assert [column.name for column in found.columns] == ["id"]
